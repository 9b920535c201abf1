"""What commands show: lines come out as they are, and figures stand right."""

import io

from rich.console import Console

from specnav.terminal import RunView, plain_table


def test_a_line_is_not_folded_and_nothing_in_it_is_markup():
    out = io.StringIO()
    words = "report: runs/[bold]a[/] " + "long " * 40 + "end"
    RunView(Console(file=out, width=40, force_terminal=True, color_system="truecolor")).say(words)
    assert out.getvalue() == words + "\n"


def test_figures_stand_right_and_words_left():
    out = io.StringIO()
    table = plain_table(("fault", "ms"), words=("fault",))
    table.add_row("camera", "7")
    Console(file=out, width=40).print(table)
    assert [line.rstrip() for line in out.getvalue().splitlines()][-1].split() == ["camera", "7"]
    assert table.columns[0].justify == "left" and table.columns[1].justify == "right"
