"""A small check of a page by rules of the Web Content Accessibility Guidelines, in the browser. For tests only.

Names of everything that can be operated, the order of Tab, tables, and the contrast of our own texts as computed, with
opacities and what lies behind them. It knows far less than a full checker, and needs none to be fetched.
"""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

OURS = ".blc, .bnc, .bnw, .bst, .bat, .decisions, .control-table, .help-terms"
"""What draws its own text; the rest is Streamlit's."""

LEAST_CONTRAST = 4.5
"""Of text that is not large (success criterion 1.4.3)."""

_CHECK = r"""
([ours, least]) => {
  const problems = [];
  const seen = (e) =>
    e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && e.getClientRects().length > 0;
  const told = (e) => {
    const where = [e, e.parentElement].map((at) => `${at.tagName}.${at.dataset.testid || at.getAttribute("class")}`);
    return `${where.join(" in ")} "${(e.textContent || "").trim().slice(0, 40)}"`;
  };

  const named = (e) => {
    const ids = (e.getAttribute("aria-labelledby") || "").split(/\s+/);
    const by = ids.map((id) => document.getElementById(id)?.textContent || "").join("");
    const labels = [...(e.labels || [])].map((l) => l.textContent).join("");
    const inside = ["INPUT", "SELECT", "TEXTAREA"].includes(e.tagName) ? "" : e.textContent;
    return [e.getAttribute("aria-label"), by, labels, inside, e.title, e.alt].some((text) => text && text.trim());
  };
  const operated = ["button", "a[href]", "input", "select", "textarea", "[tabindex='0']", "[role=button]"];
  const roles = ["img", "region", "group", "list"].map((role) => `:is(${ours}) [role=${role}]`);
  for (const e of document.querySelectorAll([...operated, ...roles].join())) {
    const inner = e.closest("[aria-hidden=true]") || e.type === "hidden";
    if (seen(e) && !inner && !named(e)) problems.push(`no name: ${told(e)}`);
  }
  for (const e of document.querySelectorAll("[tabindex]")) {
    if (e.tabIndex > 0) problems.push(`out of order: ${told(e)}`);
  }
  for (const e of document.querySelectorAll("[role=img] button, [role=img] a, [role=img] [tabindex='0']")) {
    if (seen(e) && e.tabIndex >= 0) problems.push(`a stop inside a picture: ${told(e)}`);
  }
  for (const th of document.querySelectorAll(":is(.blc-table, .control-table, .help-terms) th")) {
    if (!th.scope) problems.push(`no scope: ${told(th)}`);
  }
  const ids = [...document.querySelectorAll(":is(.blc, .bnc) [id]:not(svg *)")].map((e) => e.id);
  for (const id of new Set(ids)) {
    if (ids.filter((other) => other === id).length > 1) problems.push(`twice: #${id}`);
  }

  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((c, i) => c * a + below[i] * (1 - a));
  const ground = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const opacity = (e) => (e ? +getComputedStyle(e).opacity * opacity(e.parentElement) : 1);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let texts = 0;
  for (const part of document.querySelectorAll(ours)) {
    const walk = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const e = walk.currentNode.parentElement;
      if (!walk.currentNode.textContent.trim() || !seen(e) || e.closest("svg, script, style, .quiet")) continue;
      texts += 1;
      const below = ground(e);
      const colour = rgba(getComputedStyle(e).color);
      const above = over([...colour.slice(0, 3), colour[3] * opacity(e)], below);
      const [a, b] = [light(above), light(below)].sort((x, y) => y - x);
      const contrast = (a + 0.05) / (b + 0.05);
      if (contrast < least) problems.push(`contrast ${contrast.toFixed(2)}: ${told(e)}`);
    }
  }
  return { problems: [...new Set(problems)], texts };
}
"""


def checked(page: Page) -> dict[str, Any]:
    """problems: one sentence each; texts: how many of our own were looked at."""
    return dict(page.evaluate(_CHECK, [OURS, LEAST_CONTRAST]))
