from __future__ import annotations

import pytest

from engine.learning.stats import ChunkStats, LagStats, merge


def test_chunks_merge_by_summing_lag_by_lag():
    one = ChunkStats(groups=2, tokens=10, loss_sum=1.5, by_lag={0: LagStats(tokens=4), 1: LagStats(tokens=6, capped=1)})
    two = ChunkStats(groups=1, tokens=5, loss_sum=0.5, by_lag={1: LagStats(tokens=5, capped=2)})
    assert (
        merge([one, two])
        == merge([two, one])
        == ChunkStats(
            groups=3, tokens=15, loss_sum=2.0, by_lag={0: LagStats(tokens=4), 1: LagStats(tokens=11, capped=3)}
        )
    )
    assert merge([one, two]).over_lags == LagStats(tokens=15, capped=3)


def test_nothing_counted_is_none_and_not_zero():
    empty = merge([])
    assert [empty.loss, empty.entropy, empty.reward_mean, empty.response_len_mean, empty.lag_max] == [None] * 5
    lag = empty.over_lags
    assert [lag.mismatch_kl, lag.clip_share, lag.capped_share, lag.effective_sample_share] == [None] * 4


def test_the_effective_sample_share_by_hand():
    # weights 1 1 2: (4)^2 / (3 * 6)
    assert LagStats(tokens=3, weight_sum=4, weight_square_sum=6).effective_sample_share == pytest.approx(16 / 18)
    assert LagStats(tokens=3, weight_sum=3, weight_square_sum=3).effective_sample_share == 1.0
