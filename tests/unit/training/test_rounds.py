"""The server's rounds: cohorts, the record of a round, and classes without an annotator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from support.tiny_federation import make_federation, make_method

from fedquilt.core.errors import UserError
from fedquilt.core.tree import byte_count, same_bits
from fedquilt.training.rounds import draw_cohort, run_rounds, start_server

NAMES = tuple(f"site-{number}" for number in range(10))
TASK = replace(make_federation().task, clients=NAMES)


@pytest.mark.parametrize("size", [1, 4, 9])
def test_a_cohort_has_its_size_and_no_client_twice(size):
    for round_index in range(20):
        cohort = draw_cohort(TASK, size, round_index)
        assert len(set(cohort)) == len(cohort) == size
        assert set(cohort) <= set(NAMES)


@pytest.mark.parametrize("size", [None, 10, 50])
def test_the_cohort_is_the_population_by_default(size):
    assert list(draw_cohort(TASK, size, 3)) == sorted(NAMES)


def test_a_cohort_does_not_depend_on_the_order_of_the_population():
    turned = replace(TASK, clients=NAMES[::-1])
    for round_index in range(20):
        assert draw_cohort(TASK, 4, round_index) == draw_cohort(turned, 4, round_index)


def test_cohorts_vary_by_round_and_by_seed():
    by_round = {tuple(draw_cohort(TASK, 4, round_index)) for round_index in range(20)}
    assert len(by_round) > 15
    other = replace(TASK, seed=TASK.seed + 1)
    assert any(
        draw_cohort(TASK, 4, round_index) != draw_cohort(other, 4, round_index)
        for round_index in range(5)
    )


def test_a_cohort_does_not_depend_on_earlier_draws():
    late_alone = draw_cohort(TASK, 4, 17)
    for round_index in range(17):
        draw_cohort(TASK, 4, round_index)
    assert draw_cohort(TASK, 4, 17) == late_alone


def test_every_client_is_drawn_about_as_often():
    # 1000 rounds of 4 of 10: each 400 times, with a standard deviation of sqrt(1000 * .4 * .6) =
    # 15.5; 80 is more than five of them.
    counts = Counter(name for index in range(1000) for name in draw_cohort(TASK, 4, index))
    assert set(counts) == set(NAMES)
    assert all(abs(count - 400) < 80 for count in counts.values())


@pytest.mark.parametrize(
    ("annotated", "complaint"),
    [
        (((0,), (1,), (1,)), "no client annotates bright: nothing can be learnt about it; leave"),
        (((0,), (0,), (0,)), "no client annotates square, bright: .* about them; .*an annotator"),
    ],
)
def test_a_class_without_an_annotator_is_a_users_error(annotated, complaint):
    federation = make_federation(annotated=annotated)
    with pytest.raises(UserError, match=complaint):
        start_server(make_method("fedavg"), federation.task, federation.engine())


def test_a_class_with_one_annotated_image_is_enough():
    federation = make_federation(annotated=((0,), (1,), (1,)))
    federation.clients["site-1"].known[0, 2] = True
    start_server(make_method("fedavg"), federation.task, federation.engine())


def test_what_a_round_records():
    federation = make_federation(rounds=2)
    method, engine = make_method("fedavg"), federation.engine()
    server = start_server(method, federation.task, engine)
    rounds = list(run_rounds(method, federation.task, engine, server, cohort_size=2))
    assert [round_.index for round_ in rounds] == [0, 1]
    size = byte_count(server["weights"])
    for round_ in rounds:
        assert round_.cohort == tuple(draw_cohort(federation.task, 2, round_.index))
        assert round_.bytes_down == 2 * size
        # The change; a float64 weight for the body and 3 for the head; the loss and its weight.
        assert round_.bytes_up == 2 * (size + 8 + 3 * 8 + 4 + 8)
        assert 0 < round_.loss < 100
        assert round_.seconds > 0


def test_rounds_can_begin_later():
    """A run that goes on from round 2 does what a whole run does there."""
    federation = make_federation(rounds=3)
    method = make_method("fedavg")
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    whole = list(run_rounds(method, federation.task, engine, server, cohort_size=2))
    late = list(
        run_rounds(
            method,
            federation.task,
            federation.engine(),
            whole[1].server,
            first_round=2,
            cohort_size=2,
        )
    )
    assert [round_.index for round_ in late] == [2]
    assert late[0].cohort == whole[2].cohort
    assert same_bits(late[0].server, whole[2].server)


def test_an_error_in_a_client_says_where_it_happened():
    federation = make_federation(rounds=1)
    method = make_method("fedavg")
    diverging = replace(method, training=replace(method.training, optimizer="sgd", lr=1e30))
    with pytest.raises(UserError, match=r"became .* in round 0; lower method\.training\.lr") as it:
        federation.train(diverging)
    assert it.value.__notes__ == ["while client 'site-0' ran FedAvg, round 0"]


def test_a_kept_optimizer_acts_from_the_second_round_on():
    federation = make_federation(rounds=2)
    method = make_method("fedavg")
    keeping = replace(method, training=replace(method.training, keep_optimizer=True))
    servers = []
    for each in (method, keeping):
        engine = federation.engine()
        server = start_server(each, federation.task, engine)
        rounds = run_rounds(each, federation.task, engine, server)
        servers.append([round_.server for round_ in rounds])
    (fresh_first, fresh_second), (kept_first, kept_second) = servers
    assert same_bits(fresh_first, kept_first)
    assert not same_bits(fresh_second, kept_second)
