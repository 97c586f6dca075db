"""Sections: what they take and refuse, in words, and that a name is quoted where it stands."""

from typing import Annotated

import numpy as np
import pytest
from pydantic import ValidationError

from bspml.errors import InputError
from bspml.trainers.schedules import Schedule
from bspml.trainers.settings import (
    AutoSettings,
    Count,
    Fraction,
    PaperSettings,
    ReadBy,
    Scales,
    Section,
    as_yaml,
    keywords_of,
    qualified,
    section_of,
    takes,
    takes_each,
)


class Example(Section):
    """Keys of every kind."""

    kind: str = "plain"
    share: Annotated[Fraction, ReadBy("kind", ("planted", "drawn"))] = 0.5
    rounds: Annotated[Count | None, ReadBy("limit")] = None
    limit: float | None = None


def test_a_value_that_nothing_reads_is_refused_unless_it_is_the_default():
    assert Example(kind="plain", share=0.5).share == 0.5
    assert Example(kind="drawn", share=0.1).share == 0.1
    with pytest.raises(ValidationError, match="or set `kind` to planted or drawn"):
        Example(share=0.1)
    with pytest.raises(ValidationError, match="leave it at null, or give `limit`"):
        Example(rounds=2)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"share": 2}, r"`hyper\.share` must be in \[0, 1\]; got 2\."),
        ({"share": "x"}, r"`hyper\.share` must be a number in \[0, 1\]; got 'x'\."),
        ({"rounds": 0}, r"`hyper\.rounds` must be a whole number from 1 to 1000000000; got 0\."),
        ({"limit": float("inf")}, r"`hyper\.limit` must be a finite number; got inf\."),
        ({"limit": np.zeros(2)}, r"`hyper\.limit` must be a finite number; got array"),
        ({"share": 0.1}, r"`hyper\.share` is 0\.1, .* while `hyper\.kind` is plain; .* drawn\.$"),
    ],
)
def test_keywords_are_refused_in_a_sentence_under_the_name_of_the_caller(keywords, message):
    with pytest.raises(InputError, match=message):
        section_of(Example, keywords, "hyper.")


def test_none_is_the_default_and_whole_floats_are_whole_numbers():
    settings = section_of(Example, {"kind": None, "limit": np.float32(3), "rounds": 2.0})
    assert settings == Example(limit=3.0, rounds=2)
    assert isinstance(settings.limit, float)


def test_what_a_key_takes_is_said_in_words():
    assert takes(PaperSettings, "age") == "in [1e-09, 1e+09]"
    assert takes(PaperSettings, "age_growth") == "in [1, 1000]"
    assert takes(AutoSettings, "reset") == "true or false"
    assert takes(Scales, "base") == "in [-1e+09, 1e+09]"
    assert takes_each(Schedule, "milestones") == "a whole number from 1 to 1000000000"


def test_an_age_and_a_target_exclude_each_other_and_one_is_needed():
    with pytest.raises(InputError, match="`age` and `target_maw` exclude each other"):
        section_of(PaperSettings, {"age": 1, "target_maw": 0.5})
    with pytest.raises(InputError, match="`age_max` must be at least `age`, 2; got 1"):
        section_of(PaperSettings, {"age": 2, "age_max": 1})
    with pytest.raises(InputError, match="exactly one of `age` and `target_maw`"):
        PaperSettings().check_pace()


def test_keys_of_a_section_are_quoted_with_their_place_and_others_are_not():
    assert qualified("`age` of `this`", PaperSettings, "c.") == "`c.age` of `this`"
    assert [as_yaml(v) for v in (True, None, (1, 2), "x")] == ["true", "null", "[1, 2]", "x"]


def test_keywords_of_a_section_leave_out_what_is_null():
    keywords = keywords_of(Scales, PaperSettings(base=0.5))
    assert keywords == {"alpha": 2.0, "beta": 50.0, "base": 0.5}
    assert "age" not in keywords_of(PaperSettings, PaperSettings())


def test_what_lies_under_a_mask_is_no_value():
    for hidden in (np.ma.masked, np.ma.array(0.5, mask=True)):
        with pytest.raises(InputError, match=r"`share` must be (a number )?in \[0, 1\]; got"):
            section_of(Example, {"kind": "drawn", "share": hidden})
