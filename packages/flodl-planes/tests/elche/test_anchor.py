from flodl_planes.elche.anchor import elect


def test_the_only_slow_rank_is_the_anchor() -> None:
    assert elect({0: 4.0, 1: 10.0, 2: 5.0}, None) == 1


def test_nobody_is_elected_while_nothing_is_known() -> None:
    assert elect({0: 0.0, 1: 0.0}, None) is None


def test_the_anchor_stays_against_a_rank_that_is_a_little_slower() -> None:
    assert elect({0: 10.0, 1: 10.9}, 0) == 0


def test_a_rank_ten_percent_slower_takes_over() -> None:
    assert elect({0: 10.0, 1: 11.1}, 0) == 1


def test_without_an_anchor_in_the_slow_cohort_its_first_rank_is_it() -> None:
    assert elect({0: 2.0, 1: 9.5, 2: 10.0}, 0) == 1


def test_of_two_equal_challengers_the_last_wins() -> None:
    assert elect({0: 10.0, 1: 11.5, 2: 11.5}, 0) == 2
