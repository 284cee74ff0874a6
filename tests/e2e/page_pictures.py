"""Pictures of every page, light and dark, wide and narrow, on data of every kind; and what a look at the geometry finds
cut, overlapped or running out of the page.

    python -m tests.e2e.page_pictures --out DIR [--real DATA_DIR] [--only huge long] [--pages runs plan]

Everything but `real` is GENERATED. A finding is a hint where to look, not a verdict: somebody looks at the pictures.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from playwright.sync_api import Browser, Error

from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.writer import TelemetryWriter
from tests.app.fake_run import write_engine, write_run
from tests.e2e.generated import sized, write_finished, write_live
from tests.e2e.page_probe import App, Tab, chromium

PAGES = ("live", "timeline", "control", "decisions", "learning", "runs", "plan", "launch")
VIEWS = {"light": ("light", 1440), "dark": ("dark", 1440), "narrow": ("light", 1000)}
SETTLED_S, TALLEST = 30.0, 6000
"""Longest wait until a page does not change any more; and the most of a page that goes into a picture, pixels."""

WORD = "Donaudampfschifffahrtselektrizitaetenhauptbetriebswerkbauunterbeamtengesellschaft"
LONG = f"reward-shaping ablation with a second scorer, rerun after the node was replaced {WORD}"
NAME = WORD[:64]
"""As long as a job file allows."""

GEOMETRY = r"""
() => {
  const found = new Set();
  const told = (e) => (e.textContent || "").trim().replace(/\s+/g, " ").slice(0, 60);
  const clipped = (rect, e) => {
    let { left, top, right, bottom } = rect;
    for (let at = e; at && at !== document.documentElement; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.overflowX === "visible" && style.overflowY === "visible") continue;
      const box = at.getBoundingClientRect();
      left = Math.max(left, box.left); right = Math.min(right, box.right);
      top = Math.max(top, box.top); bottom = Math.min(bottom, box.bottom);
    }
    return right - left > 1 && bottom - top > 1 ? { left, top, right, bottom } : null;
  };
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement;
    if (!node.data.trim() || e.closest("script, style, noscript, [data-testid=stIconMaterial]")) continue;
    if (!e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) {
      const shown = clipped(rect, e);
      if (!shown) continue;
      const hidden = rect.right - rect.left - (shown.right - shown.left);
      const scrolls = (() => { for (let at = e; at; at = at.parentElement)
        if (["auto", "scroll"].includes(getComputedStyle(at).overflowX)) return true; return false; })();
      const dots = (() => { for (let at = e; at && at.clientWidth; at = at.parentElement)
        if (getComputedStyle(at).textOverflow === "ellipsis") return true; return false; })();
      if (hidden > 2 && !scrolls && !dots) found.add(`cut by ${Math.round(hidden)} px: ${told(e)}`);
      texts.push({ e, ...shown });
    }
  }
  for (const svg of document.querySelectorAll("svg.main-svg")) {
    const box = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const at = text.getBoundingClientRect();
      if (!at.width || !text.checkVisibility({ opacityProperty: true })) continue;
      const out = Math.max(box.left - at.left, at.right - box.right, box.top - at.top, at.bottom - box.bottom);
      if (out > 2) found.add(`out of its chart by ${Math.round(out)} px: ${told(text)}`);
    }
  }
  texts.sort((a, b) => a.top - b.top);
  for (let i = 0; i < texts.length; i++) {
    const a = texts[i];
    for (let k = i + 1; k < texts.length && texts[k].top < a.bottom; k++) {
      const b = texts[k];
      if (a.e === b.e || a.e.contains(b.e) || b.e.contains(a.e)) continue;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 4 && high > 0.4 * Math.min(a.bottom - a.top, b.bottom - b.top))
        found.add(`overlap: "${told(a.e)}" and "${told(b.e)}"`);
    }
  }
  const main = document.querySelector("[data-testid=stMain]") || document.documentElement;
  const wide = main.scrollWidth - main.clientWidth;
  if (wide > 1) found.add(`the page is ${wide} px too wide`);
  for (const box of document.querySelectorAll("[data-testid=stException]")) found.add(`exception: ${told(box)}`);
  return [...found];
}
"""

HEIGHT = "() => (document.querySelector('[data-testid=stMain]') || document.documentElement).scrollHeight"
STILL = (
    "() => document.querySelectorAll('[data-testid=stSpinner], [data-testid=stSkeleton], .blc-wait:not([hidden]), '"
    "+ '[data-test-script-state=running]').length + '/' + document.body.innerText.length"
)


def empty(folder: Path, now: float) -> str:
    """Nothing was ever run."""
    return ""


def idle(folder: Path, now: float) -> str:
    """An engine that waits for its first job."""
    writer = TelemetryWriter(DataDir(folder).telemetry_db, clock=lambda: now)
    write_engine(writer, now=now)
    writer.close()
    return ""


def broken(folder: Path, now: float) -> str:
    """A database that is none."""
    DataDir(folder).telemetry_db.write_bytes(b"this is not a database" * 400)
    return "demo-0001"


def failed(folder: Path, now: float) -> str:
    """A run that failed before its first step, after one whose engine fell silent."""
    writer = TelemetryWriter(DataDir(folder).telemetry_db, clock=lambda: now)
    write_engine(writer, now=now, beat_age_s=4000)
    write_run(writer, "demo-0001", now=now - 4000)
    error = f"RewardError: scorer 'verify' of reward.py raised ValueError on 49 of 64 groups: {LONG}"
    write_run(writer, "demo-0002", now=now - 100, state="failed", steps=0, spans=False, error=error)
    writer.close()
    return "demo-0002"


def long(folder: Path, now: float) -> str:
    """Names, notes and tags longer than anybody's."""
    writer = TelemetryWriter(DataDir(folder).telemetry_db, clock=lambda: now)
    write_engine(writer, now=now)
    mailbox = Mailbox(DataDir(folder).control_db)
    for number in range(1, 4):
        run_id = f"{NAME}-{number:04d}"
        write_run(
            writer, run_id, now=now - 200 * (3 - number), state="finished" if number < 3 else "running",
            pools=(6, 2), lending=True, name=NAME, who=f"{WORD}@example.org", partition="6:2", arm="bidirectional",
        )  # fmt: skip
        mailbox.set_note(run_id, LONG, who=WORD)
        for tag in ("baseline", WORD[:40], LONG[:40]):
            mailbox.add_tag(run_id, tag, who=WORD)
    writer.close()
    mailbox.close()
    return run_id


def huge(folder: Path, now: float) -> str:
    """A thousand devices and hundreds of runs."""
    write_finished(DataDir(folder), 300, now - 7200)
    recipe = sized("GENERATED-1024", 1024, 400_000, hours=0.5, now=now)
    write_live(DataDir(folder), recipe, now)
    return recipe.run_id


KINDS: dict[str, Callable[[Path, float], str]] = {
    kind.__name__: kind for kind in (empty, idle, broken, failed, long, huge)
}


def newest(folder: Path) -> str:
    """The newest run of a data folder. Raises ValueError when there is none."""
    with TelemetryReader(DataDir(folder).telemetry_db) as reader:
        runs = reader.runs(limit=1)
    if not runs:
        raise ValueError(f"{folder} holds no run to take pictures of")
    return runs[0].run_id


def settled(tab: Tab) -> bool:
    """Whether the page came to rest within `SETTLED_S`: nothing waits, and its text stays as long as it is."""
    until, last, same = time.monotonic() + SETTLED_S, "", 0
    while time.monotonic() < until:
        seen = tab.page.evaluate(STILL)
        same = same + 1 if seen == last and seen.startswith("0/") else 0
        if same >= 3:
            return True
        last = seen
        tab.wait(0.5)
    return False


def taken(browser: Browser, address: str, scheme: str, width: int, path: Path) -> list[str]:
    """Take one picture; what the geometry says."""
    tab = Tab(browser, viewport={"width": width, "height": 1000}, color_scheme=scheme)
    try:
        tab.page.goto(address)
        tab.page.locator("[data-testid=stMainBlockContainer]").wait_for()
        rested = settled(tab)
        tall = min(TALLEST, max(1000, int(tab.page.evaluate(HEIGHT))))
        tab.page.set_viewport_size({"width": width, "height": tall})
        tab.wait(1.5)
        tab.page.screenshot(path=str(path))
        found: list[str] = tab.page.evaluate(GEOMETRY)
        return found if rested else [*found, f"still changing after {SETTLED_S:.0f} s"]
    except Error as error:
        return [f"no picture: {str(error).splitlines()[0]}"]
    finally:
        tab.page.close()


def pictures(kind: str, folder: Path, run_id: str, pages: Sequence[str], out: Path) -> dict[str, list[str]]:
    """All pictures of one kind of data, and the findings by file name."""
    found = {}
    app = App(folder, out)
    try:
        with chromium() as browser:
            for page in pages:
                for view, (scheme, width) in VIEWS.items():
                    path = out / f"{kind}-{page}-{view}.png"
                    asked = f"?run={run_id}" if run_id else ""
                    address = f"{app.url}/{'' if page == 'live' else page}{asked}"
                    found[path.name] = taken(browser, address, scheme, width, path)
                    print(f"{path.name}: {'; '.join(found[path.name]) or 'nothing found'}", flush=True)
    finally:
        app.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--real", type=Path, help="a data folder with a run that was really made")
    parser.add_argument("--only", nargs="*", choices=[*KINDS, "real"], default=[*KINDS, "real"])
    parser.add_argument("--pages", nargs="*", choices=PAGES, default=PAGES)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[str]] = {}
    for kind in args.only:
        if kind == "real":
            if args.real is not None:
                found |= pictures(kind, args.real, newest(args.real), args.pages, args.out)
            continue
        folder = Path(tempfile.mkdtemp(prefix=f"pictures-{kind}-"))
        try:
            found |= pictures(kind, folder, KINDS[kind](folder, time.time()), args.pages, args.out)
        finally:
            shutil.rmtree(folder)
    (args.out / "found.json").write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
