"""Entries of the page of an audit, complete but for what a test says."""


def suspect(index=0, label="cat", suggested="dog", **changes):
    entry = {
        "index": index, "name": f"{index}.png", "label": label, "suggested": suggested,
        "margin": 0.1, "p": 0.9, "q": 0.3, "weight": 0.0, "image": None, "text": None,
        "own": [], "other": [],
    }  # fmt: skip
    return {**entry, **changes}


def class_row(label="cat", share=0.3, **changes):
    entry = {
        "label": label, "support": 10, "mean_weight": 0.7, "share_flagged": share,
        "looks_like_two": False, "looks_like": "",
    }  # fmt: skip
    return {**entry, **changes}
