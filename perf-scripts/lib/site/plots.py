"""Plots below measured tables: a bar for each number, in HTML that every theme and width can show."""

import dataclasses
import html
import re

NUMBER = re.compile(r"-?[\d,]+(?:\.\d+)?")


@dataclasses.dataclass
class Plot:
    """A plot of a table: the first one of that section whose first head is `head`, if it is given."""

    page: str
    section: str
    what: str
    # The columns whose numbers are shown; or one column, by the values of `by`.
    series: list
    labels: int = 1
    head: str = ""
    by: str = ""
    # Whether the longest bar is the largest number of each row, instead of all rows.
    by_row: bool = False


PLOTS = [
    Plot("cost.md", "What hot operations cost", "instructions of each operation; shorter is better", ["libmlx5 ST", "engine", "engine-st"]),
    Plot("cost.md", "Whole calls of DAT", "instructions of each call; shorter is better", ["c-st", "c", "rust-st"]),
    Plot("scale.md", "What many endpoints cost", "ns for each message; shorter is better", ["libmlx5 ns", "engine ns"]),
    Plot("scale.md", "Memory", "bytes for each endpoint; shorter is better", ["libmlx5 (`ibv_create_qp`)", "engine", "DAT, including its EVDs"]),
    Plot("wake.md", "What waiting costs", "CPU time in % of one processor, by messages per second; shorter is better", ["CPU [%]"], by="policy"),
    Plot("wake.md", "What waiting costs", "median latency in µs, by messages per second; shorter is better", ["median [µs]"], by="policy"),
    Plot("storm.md", "On the emulated NIC", "connections per second; longer is better", ["per second (median of 9)"], labels=3),
    Plot("storm.md", "On Soft-RoCE", "connections per second; longer is better", ["per second (median of 3)"], labels=3),
    *(Plot(f"{device}-ofed.md", "Figures", f"µs over {manager}, each row to its own scale; shorter is better", ["OFED", "ours"], head=f"us, {manager}", by_row=True)
      for device, manager in [("rxe", "rdma_cm"), ("rxe", "socket"), ("siw", "rdma_cm")]),
]


def cells(line):
    return [re.sub(r"<!--.*?-->", "", cell).strip() for cell in line.strip().strip("|").split("|")]


def number(cell):
    found = NUMBER.match(cell)
    return float(found[0].replace(",", "")) if found else None


def rows_of(plot, head, rows):
    """Returns the rows of a plot: their label, and for each series the cell, without those of no number."""
    label = lambda row: ", ".join(row[:plot.labels]) if not plot.by else row[0]
    if not plot.by:
        for row in rows:
            yield label(row), [(name, row[head.index(name)]) for name in plot.series]
        return
    grouped = {}
    for row in rows:
        grouped.setdefault(label(row), []).append((row[head.index(plot.by)], row[head.index(plot.series[0])]))
    yield from grouped.items()


def drawn(plot, head, rows):
    found = list(rows_of(plot, head, rows))
    names = list(dict.fromkeys(name for _, bars in found for name, _ in bars))
    most = max(number(cell) or 0 for _, bars in found for _, cell in bars)
    # A reference is grey, what is compared with it is not.
    colour = {name: at + (len(names) == 1) for at, name in enumerate(names)}
    plain = lambda text: html.escape(text.replace("`", ""))
    legend = "".join(f'<span class="key"><i class="bar s{colour[name]}"></i>{plain(name)}</span>' for name in names)
    groups = []
    for label, bars in found:
        scale = max(number(cell) or 0 for _, cell in bars) if plot.by_row else most
        lines = "".join(
            f'<div title="{plain(name)}"><i class="bar s{colour[name]}" style="width:{80 * number(cell) / scale:.2f}%"></i> {plain(NUMBER.match(cell)[0])}</div>'
            for name, cell in bars if number(cell) is not None)
        groups.append(f'<div class="group"><div class="label">{plain(label)}</div><div class="bars">{lines}</div></div>')
    return f'<div class="plot" role="img" aria-label="{plain(plot.what)}: the table above has the numbers"><p>{plain(plot.what)}<br>{legend if len(names) > 1 else ""}</p>\n{chr(10).join(groups)}\n</div>'


def with_plots(page, text, wrong):
    """Returns the text of a page of results with its plots, and adds to `wrong` those without a table."""
    left = [plot for plot in PLOTS if plot.page == page]
    lines, section, table, result = [*text.splitlines(), ""], "", [], []
    for line in lines:
        if line.startswith("#"):
            section = line.lstrip("# ")
        if table and not line.startswith("|"):
            head, rows = cells(table[0]), [cells(it) for it in table[2:]]
            for plot in [it for it in left if it.section == section and it.head in ("", head[0])]:
                if {*plot.series, plot.by} - {""} <= set(head):
                    result += ["", drawn(plot, head, rows)]
                    left.remove(plot)
            table = []
        if line.startswith("|"):
            table.append(line)
        result.append(line)
    wrong += [f'docs/results/{page}: no table in "{it.section}" has what the plot "{it.what}" shows (perf-scripts/lib/site/plots.py)' for it in left]
    return "\n".join(result)
