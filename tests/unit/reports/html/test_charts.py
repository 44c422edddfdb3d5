"""Line charts: ticks, gaps and marks."""

from __future__ import annotations

from fedquilt.reports.html.charts import HEIGHT, WIDTH, Line, line_chart


def test_values_are_scaled_between_round_bounds():
    line = Line("AUC", "one", (0.61, None, 0.79))
    chart = line_chart("AUC (%)", [1, 2, 5], [line], scale=100, marked=5, reference=0.5)
    assert [tick.text for tick in chart.y_ticks] == ["60", "65", "70", "75", "80"]
    assert [tick.text for tick in chart.x_ticks] == ["1", "2", "3", "4", "5"]
    (drawn,) = chart.lines
    assert drawn.pieces == ()  # no two neighbouring values
    assert drawn.dots == ((0.0, HEIGHT * 0.95), (WIDTH, HEIGHT * 0.05))
    assert drawn.last == "79.0"
    assert chart.mark == WIDTH
    assert chart.reference is None  # 50 lies below the chart


def test_neighbouring_values_are_joined():
    chart = line_chart("loss", [1, 2], [Line("loss", "one", (1.0, 0.5))], digits=3, reference=0.75)
    assert chart.lines[0].pieces == (f"0,0 {WIDTH},{HEIGHT}",)
    assert chart.lines[0].last == "0.500"
    assert chart.reference == HEIGHT / 2


def test_no_value_no_chart():
    assert line_chart("AUC", [1, 2], [Line("AUC", "one", (None, None))]) is None


def test_one_round_and_equal_values():
    chart = line_chart("AUC", [4], [Line("AUC", "one", (0.5,))], scale=100)
    assert chart.lines[0].dots[0][0] == WIDTH / 2
    assert [tick.text for tick in chart.x_ticks] == ["4"]


def test_shares_end_at_100_percent():
    chart = line_chart("correct (%)", [1, 2], [Line("correct", "one", (1.0, 1.0))], scale=100)
    assert [tick.text for tick in chart.y_ticks] == ["98", "100"]
    assert chart.lines[0].pieces == (f"0,0 {WIDTH},0",)


def test_many_rounds_have_few_ticks():
    chart = line_chart("AUC", list(range(1, 301)), [Line("AUC", "one", tuple([0.5] * 300))])
    assert [tick.text for tick in chart.x_ticks] == ["50", "100", "150", "200", "250", "300"]
