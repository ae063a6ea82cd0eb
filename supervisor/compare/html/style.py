"""The page's style sheet: two columns where there is room, light and dark, and fit for paper."""

from supervisor.compare.html.shares import DARK, SIGNS

_VERDICTS = "".join(f".{verdict} {{ background: {colour}; color: {DARK} }}\n" for verdict, (_, colour) in SIGNS.items())

STYLE = (
    """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1d20; --soft: #555b63; --edge: #d4d7db; --pale: #f5f6f7 }
@media (prefers-color-scheme: dark) {
  :root { --page: #15171a; --ink: #e8eaed; --soft: #a9b0b8; --edge: #3a3f45; --pale: #1e2125 }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 24px 20px 48px; max-width: 1024px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 6px }
h2 { font-size: 20px; margin: 40px 0 4px; padding-top: 14px; border-top: 1px solid var(--edge) }
h3 { font-size: 15px; margin: 18px 0 4px }
p { margin: 4px 0 10px; max-width: 80ch }
.soft { color: var(--soft) }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 220px), 1fr)); gap: 8px 20px;
  margin: 14px 0 }
dt { color: var(--soft); font-size: 12.5px }
dd { margin: 0; font-variant-numeric: tabular-nums }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 22px 24px;
  margin: 14px 0 10px }
figure { margin: 0; min-width: 0; break-inside: avoid; display: grid; grid-row: span 2; grid-template-rows: subgrid;
  row-gap: 4px }
figcaption p { margin: 0 }
svg { display: block; width: 100%; height: auto; max-width: 620px }
.mark { display: inline-block; width: 14px; height: 14px; vertical-align: -2px; margin-right: 7px }
.wide { overflow-x: auto; max-width: 100% }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; margin: 8px 0 }
th, td { border: 1px solid var(--edge); padding: 4px 8px; text-align: left; vertical-align: top;
  overflow-wrap: break-word }
th { background: var(--pale); font-weight: 600 }
td.n { text-align: right; white-space: nowrap }
caption { text-align: left; color: var(--soft); padding-bottom: 4px }
table.grid { width: 100%; table-layout: fixed }
.grid td { padding: 0 }
.grid td > div { padding: 5px 7px }
.grid b { display: block }
.grid td.none { padding: 5px 7px; color: var(--soft) }
.sign { display: inline-block; width: 1.2em; font-weight: 700 }
details { margin: 6px 0 }
summary { cursor: pointer; color: var(--soft) }
ol { padding-left: 24px; margin: 6px 0 }
li { margin: 3px 0 }
code { font: 13px/1.4 ui-monospace, "DejaVu Sans Mono", monospace }
.calls { border: 1px solid var(--edge); border-radius: 6px; padding: 4px 16px 10px; min-width: 0 }
@media (max-width: 620px) { body { padding: 16px 12px } .grid { font-size: 11px } .grid td > div { padding: 3px } }
@media print {
  :root { --page: #fff; --ink: #000; --soft: #444; --edge: #bbb; --pale: #f2f2f2 }
  .pair { grid-template-columns: 1fr 1fr }
  body { max-width: none; padding: 0; font-size: 11pt }
  svg, .grid td, .grid td > div { print-color-adjust: exact; -webkit-print-color-adjust: exact }
  section, .calls, tr { break-inside: avoid }
  details:not([open]) { display: none }
}
"""
    + _VERDICTS
)
