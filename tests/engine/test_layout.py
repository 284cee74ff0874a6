"""Replicas and blocks of a job's devices."""

from __future__ import annotations

import pytest

from engine.config import parse_job
from engine.layout import NODE_DEVICES, BlockLayout, Layout


def layout(devices: str, arm: str = "bidirectional") -> Layout:
    return Layout.of(parse_job(f"devices: {{kind: emulated, {devices}}}\nschedule: {{arm: {arm}}}"))


def test_where_a_device_is_a_replica_each_is_a_block_of_its_own() -> None:
    found = layout("partition: 2:1")
    assert (found.rollouters, found.trainers) == ((0, 1), (2,))
    assert found.blocks == (
        BlockLayout(block=0, pool="rollout", devices=(0,), home=(0,), away=(0,)),
        BlockLayout(block=1, pool="rollout", devices=(1,), home=(1,), away=(1,)),
        BlockLayout(block=2, pool="train", devices=(2,), home=(2,), away=(2,)),
    )


def test_a_block_holds_whole_replicas_of_both_roles() -> None:
    found = layout("partition: 4:8, train_replica_size: 4")
    assert (found.rollouters, found.trainers) == ((0, 1, 2, 3), (4, 8))
    first, second, third = found.blocks
    assert first == BlockLayout(block=0, pool="rollout", devices=(0, 1, 2, 3), home=(0, 1, 2, 3), away=(0,))
    assert second == BlockLayout(block=4, pool="train", devices=(4, 5, 6, 7), home=(4,), away=(4, 5, 6, 7))
    assert found.block_of(6) == second
    assert found.block_of(11) == third
    assert found.replica("train", 4) == (4, 5, 6, 7)
    assert found.replica("rollout", 6) == (6,)


def test_blocks_that_can_only_move_begin_where_both_roles_replicas_fit() -> None:
    found = layout("partition: 7:8, train_replica_size: 4", arm="no_borrow")
    assert [(block.block, block.pool) for block in found.blocks] == [(3, "rollout"), (7, "train"), (11, "train")]
    assert found.block_of(0) is None


def test_a_block_that_moves_takes_its_replicas_along() -> None:
    found = layout("partition: 7:8, train_replica_size: 4", arm="no_borrow")
    assert found.to_move(3) == {3: "train"}
    moved = found.move(3, "train")
    assert moved == BlockLayout(block=3, pool="train", devices=(3, 4, 5, 6), home=(3,), away=(3, 4, 5, 6))
    assert (found.rollouters, found.trainers) == ((0, 1, 2), (3, 7, 11))
    assert found.to_move(11) == {3: "rollout", 7: "rollout"}
    found.move(3, "rollout")
    assert found.rollouters == (0, 1, 2, 3, 4, 5, 6)
    assert found.to_move(7) == {}


@pytest.mark.parametrize("partition", ["7:8", "3:12", "11:4"])
def test_a_block_stays_on_its_node_wherever_its_home_is(partition: str) -> None:
    before = layout("partition: 7:8, train_replica_size: 4", arm="no_borrow")
    after = layout(f"partition: {partition}, train_replica_size: 4", arm="no_borrow")
    assert [before.node_of(device) for device in range(15)] == [after.node_of(device) for device in range(15)]


def test_without_pools_a_unit_has_both_roles_under_one_name() -> None:
    found = layout("count: 8, train_replica_size: 4, rollout_replica_size: 2", arm="colocated")
    assert (found.rollouters, found.trainers, found.copies, found.blocks) == ((0, 4), (0, 4), 2, ())
    assert found.replica("rollout", 4) == found.replica("train", 4) == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("devices", "arm"),
    [
        ("partition: 3:64, train_replica_size: 4", "no_borrow"),
        ("partition: 64:6, train_replica_size: 3, rollout_replica_size: 4", "no_borrow"),
        ("partition: 48:48, train_replica_size: 12", "bidirectional"),
        ("count: 66, train_replica_size: 6, rollout_replica_size: 2", "colocated"),
    ],
)
def test_no_replica_is_split_over_nodes(devices: str, arm: str) -> None:
    found = layout(devices, arm)
    for role, leaders in (("rollout", found.rollouters), ("train", found.trainers)):
        for first in leaders:
            assert len({found.node_of(device) for device in found.replica(role, first)}) == 1
    nodes = [found.node_of(device) for device in range(found.devices)]
    assert nodes == sorted(nodes)
    assert len(set(nodes)) > 1


def test_a_node_hosts_whole_blocks() -> None:
    found = layout("partition: 24:24, train_replica_size: 12")
    assert found.node_devices == 24 <= NODE_DEVICES
    assert [found.node_of(block.block) for block in found.blocks] == [0, 0, 1, 1]
    assert layout("partition: 48:48, train_replica_size: 48").node_devices == 48
