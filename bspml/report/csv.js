"use strict";
// CSV as bspml writes and reads it: RFC 4180, UTF-8, labels that survive a spreadsheet.
const csv = (() => {
  // The same marks as bspml's tables (bspml/files/cells.py), spelled out alike: a leading apostrophe says
  // 'text, not a formula, a number or a date'.
  const FORMULA = /^[=+\-@'\t\r\n＝＋－＠]/u;
  const SPACE = String.raw`[\t-\r\x1c-\x20\x85\xa0\u1680\u180e\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]*`;
  const DIGIT = String.raw`(?:(?![\u{10000}-\u{10ffff}])\p{Nd})`;
  const NUMBER = new RegExp(
    `^(?:${SPACE}${DIGIT}(?:${DIGIT}|[.,_/:%\\-]| (?=%|${DIGIT}))*(?:[eE][+\\-]?${DIGIT}*)?${SPACE}`
    + `|${SPACE}\\.${DIGIT}[\\s\\S]*`
    + "|[nN][aA][nN]|[iI][nN][fF]|[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$", "u");
  const protect = (text) =>
    !text || FORMULA.test(text.replace(/^ +/, "")) || NUMBER.test(text) ? `'${text}` : text;
  const bare = (text) =>
    text.startsWith("'") && protect(text.slice(1)) !== text.slice(1) ? text.slice(1) : text;
  const quoted = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

  const line = (cells) => cells.map((cell) => quoted(String(cell))).join(",") + "\r\n";

  // UTF-8, and lone surrogates (file names that are no text) as the three bytes that bspml reads.
  function encode(text) {
    const parts = [];
    for (const part of text.split(/(\p{Cs})/u)) {
      const unit = part.length === 1 ? part.charCodeAt(0) : 0;
      parts.push(unit >= 0xd800 && unit <= 0xdfff
        ? Uint8Array.of(0xe0 | (unit >> 12), 0x80 | ((unit >> 6) & 63), 0x80 | (unit & 63)) : part);
    }
    return parts;
  }

  function decode(bytes) {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: false });
    let text = "", start = 0;
    for (let i = bytes.indexOf(0xed); i >= 0; i = bytes.indexOf(0xed, i + 1)) {
      if (bytes[i + 1] < 0xa0 || i + 2 >= bytes.length) continue;
      text += decoder.decode(bytes.subarray(start, i));
      text += String.fromCharCode(0xd000 | ((bytes[i + 1] & 63) << 6) | (bytes[i + 2] & 63));
      start = i + 3;
    }
    return text + decoder.decode(bytes.subarray(start));
  }

  function parse(text) {
    const rows = [];
    let row = [], cell = "", inside = false, i = 0;
    const endRow = () => { row.push(cell); if (row.length > 1 || cell) rows.push(row); row = []; cell = ""; };
    for (; i < text.length; i++) {
      const c = text[i];
      if (inside) {
        if (c !== '"') cell += c;
        else if (text[i + 1] === '"') { cell += '"'; i++; }
        else inside = false;
      } else if (c === '"' && cell === "") inside = true;
      else if (c === ",") { row.push(cell); cell = ""; }
      else if (c === "\n" || c === "\r") { if (c === "\r" && text[i + 1] === "\n") i++; endRow(); }
      else cell += c;
    }
    endRow();
    return rows;
  }

  return { protect, bare, line, encode, decode, parse };
})();
