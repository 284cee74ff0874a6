"""Faults that somebody could make in `planner/policy`, each of which some test must notice: `tests.mutants` runs them.

Each is a change of one place that changes what is decided (never just speed, or a sentence). An `old` that a change of
the policy has made stale is updated here, or its mutant replaced by one of the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault."""

    file: str
    """below planner/policy"""
    old: str
    """text that occurs exactly once in the file"""
    new: str
    """what stands there instead"""
    breaks: str
    """one sentence: the rule that no longer holds"""


def _mutants_of(file: str, *changes: tuple[str, str, str]) -> tuple[Mutant, ...]:
    return tuple(Mutant(file=file, old=old, new=new, breaks=breaks) for old, new, breaks in changes)


STALENESS = (
    *_mutants_of(
        "bound.py",
        ("* self.prompts_per_step + ROUNDING)", "* self.prompts_per_step)", "2.3 of 10 groups means 22, not 23"),
        ('"F", rest)', '"F", rest + 1)', "one group more than F may be k + 1 versions old"),
        ("math.ceil(bound.staleness)", "math.floor(bound.staleness)", "the largest lag of a fractional s is floor(s)"),
    ),
    *_mutants_of(
        "staleness.py",
        (
            "return started - excluded < bound",
            "return started - excluded <= bound",
            "one group more than the starting rule allows is started",
        ),
        (
            "return started - excluded < bound",
            "return started < bound",
            "excluded groups stay in the count, so that they starve the run",
        ),
        (
            "wanted = slots_left if limit is None else min(limit, slots_left)",
            "wanted = slots_left",
            "a limit is exceeded",
        ),
        (
            "cell.slips_left -= cell.deadline < version",
            "cell.slips_left -= 0",
            "more than F late groups are taken in one selection",
        ),
        ("cell.count > cell.slips_left)", "cell.count >= cell.slips_left)", "groups that may still slip are overdue"),
        ("if len(bounds) > bounds[0].F", "if len(bounds) > bounds[0].F + 1", "a step with F + 1 late groups is valid"),
    ),
    *_mutants_of(
        "reservation.py",
        ("version + bound.k\n", "version + bound.k + 1\n", "a group's deadline is a step too late"),
        ("and cell.slips_left > 0)", "and cell.slips_left >= 0)", "one late group more than F is trained"),
        (
            "_needed_besides(cell, needed, version) < slots_left",
            "_needed_besides(cell, needed, version) <= slots_left",
            "the last slot that older groups need is given away",
        ),
        (
            "and _needed_besides(cell, needed, version) < slots_left\n",
            "",
            "no slot is reserved: stragglers are left behind",
        ),
        ("< (best.version, best.ready[0])", "> (best.version, best.ready[0])", "the newest version is taken first"),
        (
            "slipped.slips_left -= count",
            "slipped.slips_left -= 0",
            "late groups that the step has already do not count",
        ),
        ("min(cell.bound.F, cell.count)", "0", "no slot is spared for what may slip: the trainer waits too long"),
        ("total - slip - later * per_step", "total - slip - (later + 1) * per_step", "later steps hold B groups more"),
        (
            "end = at + 1 if at > 0 and cell.count <= cell.bound.F else at",
            "end = at",
            "a group that may slip takes a slot that another one due now needs",
        ),
    ),
    *_mutants_of(
        "counted.py",
        ("sum(len(cell.ready) for", "sum(cell.count for", "groups in flight count as finished"),
        (
            "key=lambda g: (g.order, g.group_id)",
            "key=lambda g: (-g.order, g.group_id)",
            "the last completed goes first",
        ),
        ("cell.picture = self._picture = None", "self._picture = None", "a picture shows counts of long ago"),
        ("        self._total -= 1\n", "", "the number of unconsumed groups never falls"),
    ),
    *_mutants_of(
        "staleness_change.py",
        ("-(-beyond // prompts_per_step)", "(beyond // prompts_per_step)", "a step begun is not counted in the answer"),
        (" + (group.bound.F > 0) + 1", " + 1", "the latest step forgets the groups that may slip"),
        (
            "begun = slots_left < prompts_per_step or bool",
            "begun = bool",
            "a step that holds a group counts as untouched",
        ),
        ("max(ids) < end", "max(ids) <= end", "a group of the next change passes for one of this change"),
        ("self._waiting[place + 1 :]\n", "self._waiting[place:]\n", "a change takes effect again and again"),
    ),
)

GATES = (
    *_mutants_of(
        "gates.py",
        ("admit = gain_s > cost_s", "admit = gain_s >= cost_s", "rollouters are lent for no gain"),
        ("alone_s - joint_s, in_s + out_s\n", "alone_s - joint_s, in_s\n", "the way home (C_out) costs nothing"),
        ("joint_s + out_s + grad_s", "joint_s + out_s", "merging the gradients (C_grad) costs nothing"),
        ("admit = borrow_s < alone_s", "admit = borrow_s <= alone_s", "trainers are lent for no gain"),
        ("primaries) <= in_s:", "primaries) < in_s:", "what the primaries finish exactly at C_in is not drained"),
        ("rest = units[drained:]", "rest = units", "what the primaries drain meanwhile is shared out once more"),
        ("auxiliaries + replicas) //", "auxiliaries) //", "halves of a group go to the primaries"),
    ),
    *_mutants_of(
        "lazy_pull.py",
        ("TAIL_CHUNKS = 2", "TAIL_CHUNKS = 1", "the last chunk of one side is not sized"),
        (
            "-1, -1) if primary else range",
            "-1, -1) if not primary else range",
            "among equal splits the auxiliary gets more",
        ),
        ("n = min(share, max_chunk)", "n = share", "a chunk of the tail is larger than a chunk may be"),
        (
            '{"primary": primaries, "auxiliary": auxiliaries}',
            '{"auxiliary": auxiliaries, "primary": primaries}',
            "when both sides are ready the auxiliary pulls first",
        ),
        ("ends.append(other_ready +", "ends.append(now +", "the tail takes the other side for ready now"),
    ),
    *_mutants_of(
        "chunks.py",
        ("Outcome.STOP_AT_GROUP_BOUNDARY,", "Outcome.FINISH_FIRST,", "a revoked chunk keeps the device to its end"),
        ("AUXILIARY_DIED: Outcome.KEPT", "AUXILIARY_DIED: Outcome.BACK_TO_QUEUE", "merged groups are trained twice"),
        ("PRIMARY_DIED and held:", "PRIMARY_DIED:", "a gradient that died with the primary passes for trained"),
    ),
    *_mutants_of(
        "guard.py",
        ("if len(gains_s) < MIN_LEASES", "if len(gains_s) <= MIN_LEASES", "the verdict comes a lease late"),
        ("if bound_s < 0:", "if mean_s < 0:", "noise alone switches a direction off"),
        ("[-WINDOW_LEASES:]", "[:WINDOW_LEASES]", "the first leases are remembered, not the last ones"),
        (
            "off_until=now + OFF_S, reason",
            "gains_s=gains_s, off_until=now + OFF_S, reason",
            "old losses outlive the pause",
        ),
        ("upper_bound(gains_s, CONFIDENCE)", "upper_bound(gains_s, 0.5)", "the bound is the mean itself"),
    ),
    *_mutants_of(
        "leases.py",
        ("RELEASED: (),", "RELEASED: (LeaseState.PREPARING,),", "a lease that is over comes back"),
        (
            "WORKING: (LeaseState.DRAINING, LeaseState.RELEASING, ",
            "WORKING: (LeaseState.DRAINING, ",
            "a working lease cannot be revoked at once",
        ),
    ),
)

WORK = (
    *_mutants_of(
        "pulls.py",
        ("heapreplace(roomy, (room + 1,", "heapreplace(roomy, (room,", "a replica is filled beyond its room"),
        (
            "(version) - (state.started - state.excluded)",
            "(version) - state.started",
            "excluded groups are never made up for",
        ),
        ("life = 2 * state", "life = 1 * state", "a reservation expires after C_in"),
        ("(kept if block is None and device not in dry else 0)", "0", "primaries take the groups that are reserved"),
        (" and device not in dry else", " else", "a primary that has run dry waits beside reserved groups"),
        ("quota.get(block, 1) <= 0", "quota.get(block, 1) < 0", "an auxiliary takes a group more than its share"),
        (
            "if replica.device not in loading and must_drain(replica, state.published):",
            "if False:",
            "a replica with old weights that must drain starts groups",
        ),
        ("(-state.upcoming[place], place)", "(state.upcoming[place], place)", "the shortest groups start first"),
    ),
    *_mutants_of(
        "prefixes.py",
        ("group.version == version if", "group.version <= version if", "at s = 0 a prefix goes on under newer weights"),
        ("else group.version <= version)", "else True)", "a prefix goes on under weights older than its own"),
        ("free[device] -= 1", "pass", "a replica is filled twice: with prefixes and with new groups"),
    ),
    *_mutants_of(
        "weights.py",
        (
            "behind and replica.in_flight > 0 and not",
            "behind and not",
            "an empty replica never takes newer weights",
        ),
        (" and not replica.may_update_in_flight", "", "in-flight updates never happen"),
    ),
    *_mutants_of(
        "pools.py",
        ("        if not state.paused:\n", "        if True:\n", "a paused run starts groups"),
        (
            "if state.stopping or state.paused or slots == 0",
            "if state.stopping or slots == 0",
            "a paused run fills its step",
        ),
        ("if not (complete or state.streaming):", "if False:", "a whole-batch trainer starts on a partial batch"),
    ),
    *_mutants_of(
        "training.py",
        ("replica.chunks < chunks_ahead", "replica.chunks <= chunks_ahead", "a trainer holds a chunk too many"),
        (
            "chunks_ahead and now >= replica.ahead_at",
            "chunks_ahead",
            "a chunk is bound to a trainer long before its turn",
        ),
        (
            "replica.busy is None or takes_chunk(replica",
            "replica.busy is None or False and takes_chunk(replica",
            "a lent trainer is handed chunk after chunk and never goes home",
        ),
        ("if state.paused or state.stopping or not queue:", "if not queue:", "a paused run trains"),
        ("len(queue), -(-open_groups // shares))", "len(queue))", "chunks do not shrink toward a step's end"),
        ("shares = HALVES * trainers if", "shares = trainers if", "a chunk is a trainer's whole share"),
        ("takers.sort(key=lambda replica: replica.chunks)", "", "a working trainer is fed before an idle one"),
        ("elif size < state.max_chunk_groups:", "elif True:", "a working trainer is never handed a full chunk ahead"),
        ("primary=puller.lease is None", "primary=puller.lease is not None", "at a tie the auxiliary gets more"),
        ("now, replica.busy_since +", "now, now +", "a chunk's time is counted from now, not from when it began"),
        ("now=ready_at(puller)", "now=now", "who pulls ahead is taken to be idle and gets too much of the tail"),
        (
            "if step.trained < state.bound.prompts_per_step or waiting",
            "if step.trained < state.bound.prompts_per_step",
            "the optimizer changes the version that is being evaluated",
        ),
        ("if not replica.shipped]", "if not replica.shipped and not replica.lease]", "an auxiliary's gradient is lost"),
        ("if state.closing_since is not None or not primaries:", "if not primaries:", "a step is made twice"),
    ),
    *_mutants_of(
        "colocated.py",
        (
            "len(device.finished) == device.share",
            "device.started == device.share",
            "a device trains a part of its share",
        ),
    ),
    *_mutants_of(
        "idle.py",
        ('    if state.paused:\n        return "paused"\n', "", "a pause is not the cause of idle time"),
        (" and not replica.loading", "", "a replica that loads weights counts as idle"),
        ("len(state.step.taken) < state", "len(state.step.taken) <= state", "the barrier passes for missing groups"),
        ("trainer.lease is None else", "trainer.lease is not None else", "a trainer on its way home waits for weights"),
        (" | act.LoadWeights()", "", "the RollPool is not lent for the last steps of a run"),
    ),
    *_mutants_of(
        "decide.py",
        ('"no_borrow": pools.decide', '"no_borrow": borrow.decide', "the arm without borrowing lends"),
        ('"bidirectional_paper", *OURS)', "*OURS)", "an arm is missing"),
    ),
)

LEASES = (
    *_mutants_of(
        "borrow.py",
        ("if state.stopping or state.paused:", "if state.stopping:", "a paused run keeps its leases"),
        ("revoke=True", "revoke=False", "a run that stops waits for chunks of its leases"),
        ("block.lease_state in AT_WORK", 'block.lease_state in ("working",)', "a run that stops lets leases prepare"),
    ),
    *_mutants_of(
        "arms.py",
        ('arm == "bidirectional_paper" or (arm in OURS', "(arm in OURS", "the paper's gates come after the pulls"),
    ),
    *_mutants_of(
        "leases_paper.py",
        ('if "rollout_on_train" in state.directions and', "if", "trainers are lent although they may not be"),
        ('if "train_on_rollout" in state.directions and', "if", "rollouters are lent although they may not be"),
        (' and "rollout" not in active', "", "trainers are lent while rollouters are"),
        ("if (active and not parts.block_leases) or any(", "if any(", "a pool is lent piece by piece"),
        (
            ' or any(block.lease_state == "dead" for block in state.blocks)',
            "",
            "a pool is lent with a dead block in it",
        ),
        ("len(state.step.taken) - finished)", "len(state.step.taken))", "groups that are finished count as missing"),
        ("if parts.cheap_return else 0.0", "", "the published gate forgives what ours does"),
        ("reserved=share + (place < rest)", "reserved=share", "the reservations do not add up to Q_a"),
        (
            "if blocks and not state.returned and startable(state, state.published) == 0:",
            "if blocks:",
            "rollouters are lent while groups may be started",
        ),
        (
            "if done and not more:",
            "if False:",
            "a lease of rollouters goes on with nothing to do",
        ),
        (
            '        return "the trainer lacks no groups"\n',
            '        return ""\n',
            "trainers stay away although their batch is finished",
        ),
        ("idle = all(", "idle = not all(", "a lease of trainers ends in the middle of a chunk and not after it"),
        (
            "parts = state.improvements if state.arm in OURS else PAPER",
            "parts = state.improvements",
            "the paper's arm has ours",
        ),
    ),
    *_mutants_of(
        "leases_ours.py",
        ("return over or lend_training", "return over + lend_training", "a lease opens in the round that ends another"),
    ),
    *_mutants_of(
        "lend_training.py",
        ("if DIRECTION not in state.directions or view", "if view", "trainers are lent although they may not be"),
        ("view.trainable > 0 or view.lent_rollout or", "view.lent_rollout or", "trainers are lent with work to train"),
        (" or view.lent_rollout or", " or", "trainers are lent while rollouters are"),
        (
            "if work <= 0 or not view.home_train:",
            "if not view.home_train:",
            "trainers are lent for groups that have room",
        ),
        ("length_s - costs.out_s - used", "length_s - used", "the way home (C_out) costs nothing"),
        ("        trainers -= block.primaries\n", "", "each lent block is weighed as if the others stayed at home"),
        ("        work -= block.auxiliaries * view.estimates.slot_groups\n", "", "blocks are lent for the same groups"),
        ("            continue\n", "            pass\n", "a lease is called home before it has delivered"),
        ("if end_s > stay_s:", "if True:", "below s = 1 a lease is never called home for its trainers' work"),
        ("if view.startable + view.returned > 0 and not quota_over:", "if True:", "a lease goes on with nothing to do"),
        ("(early and r.busy ==", "(r.busy ==", "trainers prepare during the optimizer step though they may not"),
    ),
    *_mutants_of(
        "lend_rollout.py",
        ("if DIRECTION not in state.directions or view", "if view", "rollouters are lent although they may not be"),
        (
            "view.trainable == 0 or view.lent_train or",
            "view.trainable == 0 or",
            "rollouters are lent while trainers are",
        ),
        ("if view.startable > 0 or not", "if not", "rollouters are lent while groups may be started"),
        ("view.trainable - view.trainers)", "view.trainable)", "more trainers than groups"),
        ("room -= free.get(block.block, 0) + moved", "room -= moved", "the room that leaves with a block still counts"),
        ("(moved and (room < 0 or", "(moved and (", "a block leaves although its groups fit nowhere else"),
        ("at_close=False) < wait_s:", "at_close=False) < 0:", "groups are moved although the trainers run dry"),
        (
            "if view.dry_in(rollouters, others, at_close=closing) >= wait_s:",
            "if False:",
            "every lease ends with its step",
        ),
        (
            "others = trainers - block.auxiliaries if view.steps_ahead >= 1 else trainers",
            "others = trainers",
            "a block comes home as if it went on training when it has left",
        ),
        (">= wait_s:", ">= 0:", "a lease is kept while the trainers run dry"),
        (
            "if view.trainable == 0 and view.needed > 0:",
            "if False:",
            "idle auxiliaries stay while groups may be started",
        ),
        ('"" if block.block in kept else', '"" if block.block not in kept else', "the wrong leases end with the step"),
    ),
    *_mutants_of(
        "outlook.py",
        (
            "self.finished if at_close else",
            "self.finished if not at_close else",
            "at a step's end its groups count again",
        ),
        ('        if block.lease_state == "dead":\n            continue\n', "", "a dead block counts as one at home"),
        ("rollouters + (not train) * block.primaries", "rollouters", "rollouters on their way home are forgotten"),
        ("work - max(0.0, others - opened) * in_s", "work", "nobody starts groups while a lease prepares"),
        ("horizon_s - (self.estimates.group_latency_s - age_s)", "horizon_s", "a lease delivers groups at once"),
        ("self.tail_s / (1 + self.steps_ahead)", "self.tail_s", "staleness hides nothing of a step's tail"),
        ("supply + (self.finished + self.trainable) / horizon_s", "supply", "what is finished gives no work at home"),
        ("max(0.0, now - block.since - estimates", "max(0.0, now - estimates", "a lease's age is that of the run"),
    ),
    *_mutants_of(
        "returns.py",
        ("return min(ends)\n\n\ndef best", "return max(ends)\n\n\ndef best", "the worst way home is foreseen"),
        ("plan.trainers - plan.primaries * count)", "plan.trainers)", "trainers that are lent go on training"),
        ("trainers.append((plan.out_s,", "trainers.append((0.0,", "a block is home at once"),
        ("rollouters.append((plan.in_s,", "rollouters.append((0.0,", "a lent block generates at once"),
        (
            "view.needed - view.in_flight - view.returned",
            "view.needed - view.in_flight",
            "prefixes are generated twice",
        ),
        (
            "for block in view.home_rollout) if helpers else 0",
            "for block in view.home_rollout)",
            "helpers that may not",
        ),
    ),
    *_mutants_of(
        "step_end.py",
        ("start + left / replicas + work.tail_s", "start + left / replicas", "the last group takes no longer"),
        ("if start >= helped_s else 0", "if start >= rolled_s else 0", "helpers train without having prepared"),
        (
            "min(trained + rate * (end - start), work.trainable + coming * share)",
            "trained + rate * (end - start)",
            "groups are trained before they are generated",
        ),
        (
            "next(count for at, count in reversed(trainers)",
            "next(count for at, count in (trainers)",
            "nobody comes home",
        ),
    ),
)

OPERATORS = (
    *_mutants_of(
        "steered.py",
        ("if state.stopping:", "if False:", "a run that stops moves devices"),
        ("dict.fromkeys(state.recalled,", "dict.fromkeys((),", "a lease goes on in a direction that is off"),
        (
            "block.block in reasons and block",
            "block.block not in reasons and block",
            "the wrong leases are called home",
        ),
        ("block.lease_state in AT_WORK", "True", "a lease on its way home is called home again"),
        ('block.lease is not None or block.lease_state == "dead"}', "block.lease is not None}", "a dead block moves"),
        ("and not moving.awaited and", "and", "an evaluation waits for ever for a trainer that has left"),
        ("busy.isdisjoint(moving.home)", "True", "a trainer leaves in the middle of its chunk"),
        (
            "limits.lend_cap is not None and out + block.devices > ",
            "limits.lend_cap is not None and out > ",
            "one too many",
        ),
        ("out += block.devices", "out += 0", "leases of one decision do not count together"),
        ("now - block.since < min_lease_s", "now - block.since <= -min_lease_s", "a young lease ends"),
        ("case EndLease(revoke=False) if", "case EndLease() if", "what an operator takes back stays lent"),
        ("if told or action.direction in state.refused:", "if told:", "a refusal is said again and again"),
    ),
    *_mutants_of(
        "training.py",
        ("or replica.leaving or replica.busy", "or replica.busy", "a trainer that leaves is handed more chunks"),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*STALENESS, *GATES, *WORK, *LEASES, *OPERATORS)
