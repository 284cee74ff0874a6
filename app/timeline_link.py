"""A button that copies the address of exactly the window that is shown, also while the page follows a live run."""

from __future__ import annotations

import streamlit as st

from app.timeline_url import exact_params

_JS = """
export default function({ parentElement, data }) {
  parentElement.dataset.params = JSON.stringify(data.params);
  if (parentElement.querySelector("button")) return;
  const button = document.createElement("button");
  const show = (text) => { button.textContent = text; };
  button.type = "button";
  button.title = "Copy an address that shows this window and these choices, also when the run is long over";
  button.style.cssText = "font: inherit; font-size: .85rem; color: var(--st-link-color); background: none; border: 0;" +
    "padding: 0; cursor: pointer; white-space: nowrap;";
  show("Copy link to this window");
  button.onclick = async () => {
    const url = new URL(window.location.href);
    const params = JSON.parse(parentElement.dataset.params);
    for (const [key, value] of Object.entries(params)) url.searchParams.set(key, value);
    try { await navigator.clipboard.writeText(url.href); show("Copied"); }
    catch { window.prompt("Copy this address", url.href); }
    setTimeout(() => show("Copy link to this window"), 2000);
  };
  parentElement.append(button);
}
"""
_copy = st.components.v2.component("bidirl_copy_window", js=_JS, isolate_styles=False)


def copy_window(run_id: str, window: tuple[float, float]) -> None:
    """window: unix seconds."""
    _copy(key=f"copy_window:{run_id}", data={"params": exact_params(window)}, width="content")
