"""Groups of rows, for machines of many shapes."""

from dataclasses import replace

import pytest
from concord.hw.mvm.dot_products import groups, joins
from concord.hw.mvm.row_groups import ROWS, lateness, row_groups
from concord.spec.machine.config import PRESETS, preset

SHAPES = {
    **{name: config for name, config in PRESETS.items() if name != "brainwave_s10"},
    **{f"{rows} rows, {words} lanes of words, {count} multipliers": replace(
        preset("vision"), native_dim=rows, lanes=4, mfu_lanes=words, multipliers=count)
       for rows in (8, 16, 32) for words in (2, 4, 8) for count in (0, 20, 60)}}


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_rows_are_not_later_than_the_words_that_take_them(config):
    late = lateness(config)
    assert len(late) == config.native_dim
    assert late == sorted(late)
    assert late[0] == 0
    assert all(later - each in (0, 1) for each, later in zip(late, late[1:], strict=False))
    assert all(late[row] <= row // config.mfu_lanes for row in range(config.native_dim))


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_rows_that_share_multipliers_are_in_one_group(config):
    chosen = row_groups(config)
    assert max(group.rows for group in chosen) <= ROWS
    number = [k for k, group in enumerate(chosen) for _ in range(group.rows)]
    first = 0
    for shared in groups(config, joins(config)):
        assert len(set(number[first:first + shared.rows])) == 1
        first += shared.rows
