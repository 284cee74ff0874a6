// What a text means, behind it: for a pointer, for the keyboard, and for a screen reader.

const CSS = `
.bht { position: relative; display: inline-flex; align-items: center; }
.bht-said { cursor: help; text-decoration: underline dotted transparent; text-underline-offset: 3px; }
.bht-said:hover, .bht-said:focus-visible { text-decoration-color: currentColor; }
.bht-said:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; border-radius: 2px; }
.bht-mark { font-family: "Material Symbols Rounded"; font-size: 1rem; line-height: 1; opacity: .75; margin-left: .35rem; text-decoration: none; user-select: none; }
.bht-tip { display: none; position: absolute; z-index: 30; top: calc(100% + .3rem); left: 0; width: max-content; max-width: min(26rem, 80vw); padding: .5rem .65rem; border-radius: .4rem; font-size: .8rem; font-weight: 400; line-height: 1.4; white-space: pre-line; color: var(--st-text-color); background: var(--st-secondary-background-color); border: 1px solid var(--st-border-color); box-shadow: 0 4px 16px rgba(0,0,0,.18); }
.bht.end .bht-tip { left: auto; right: -1rem; }
.bht-said:hover ~ .bht-tip, .bht-said:focus-visible ~ .bht-tip, .bht-tip:hover { display: block; }
.bht-said.quiet ~ .bht-tip { display: none; }
`;

let made = 0;

export function sheet(id, text) {
  if (document.getElementById(id)) return;
  const style = document.createElement("style");
  style.id = id;
  style.textContent = text;
  document.head.appendChild(style);
}

export const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// mark: the ? of a heading, where the text itself is not what is pointed at
export function explained(className = "", mark = false) {
  sheet("bht-style", CSS);
  const root = document.createElement("span");
  const said = document.createElement("span");
  const tip = document.createElement("span");
  root.className = "bht";
  said.className = `bht-said ${className}`;
  said.tabIndex = 0;
  tip.className = "bht-tip";
  tip.setAttribute("role", "tooltip");
  tip.id = `bht-tip-${++made}`;
  said.setAttribute("aria-describedby", tip.id);
  if (mark) {
    said.classList.add("bht-mark");
    said.setAttribute("role", "img");
    said.setAttribute("aria-label", "Help");
    said.setAttribute("translate", "no");
    said.textContent = "help";
  }
  // what covers its neighbours can be sent away without leaving the text
  said.onkeydown = (event) => { if (event.key === "Escape") said.classList.add("quiet"); };
  said.onblur = said.onmouseleave = () => said.classList.remove("quiet");
  root.append(said, tip);
  return { root, said, tip };
}
