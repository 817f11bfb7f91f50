/* The form of one item: a field for each sub-sentence and each fact, and the mark. One moves among fields with
   the arrow keys and chooses in them with digits. */

import { button, el, foreign, plural, radios } from "./review-elements.js";
import { DECISIONS, LABELS, MARKS } from "./review-opinion.js";

const SHOWN = 2000;

export class ReviewForm {
  #place;
  #shown;
  #opinion;
  #categories;
  #onChange;
  #tell;

  /* `onChange` hears of each change of `opinion`, `tell` what the reviewer should know. */
  constructor(place, shown, opinion, categories, { onChange, tell }) {
    this.#place = place;
    this.#shown = shown;
    this.#opinion = opinion;
    this.#categories = categories.length ? categories : ["other"];
    this.#onChange = onChange;
    this.#tell = tell;
    place.replaceChildren();
    for (let at = 0; at < Math.max(1, shown.units.length); at++) this.#drawUnit(at);
    place.append(el("fieldset", { class: "question mark card" },
      el("legend", null, "The answer as a whole ", el("span", { class: "soft" }, "if you like")),
      el("div", { class: "options" }, ...radios("mark", MARKS, String(opinion.mark), mark => this.#set(() => { opinion.mark = Number(mark); })))));
    this.refresh();
  }

  /* "3 of 8 facts to decide", empty when all is done. */
  get left() {
    const { open, counted, unmarked } = this.#opinion;
    return [
      open ? `${open} of ${plural(counted, "fact")} to decide` : "",
      unmarked ? `${plural(unmarked, "sub-sentence")} to mark` : "",
    ].filter(Boolean).join(" · ");
  }

  /* What follows from the opinion: what is skipped, and which label a decision implies. */
  refresh() {
    this.#opinion.labels.forEach((label, at) => {
      const section = this.#section(at);
      section.classList.toggle("skipped", label === "analytical");
      section.querySelector(".stated").hidden = label === "analytical";
      const radio = section.querySelector(`input[name="unit-${at}"][value="${label}"]`);
      if (radio) radio.checked = true;
    });
  }

  /* ---- moving ---- */

  get current() {
    return document.activeElement?.closest?.(".question");
  }

  /* The number of the sub-sentence that one is at; undefined outside. */
  get unit() {
    return this.current?.closest("[data-section]")?.dataset.section;
  }

  focusFirst() {
    this.focus(this.#missing()[0] || this.#fields()[0]);
  }

  /* False when nothing is missing. */
  focusMissing() {
    const [first] = this.#missing();
    if (first) this.focus(first);
    return Boolean(first);
  }

  focus(field) {
    const target = field?.querySelector("input:checked, input[type=text]") || field?.querySelector("input, button");
    target?.focus({ preventScroll: true });
    field?.scrollIntoView({ block: "nearest" });
  }

  move(step) {
    const all = this.#fields();
    const at = all.indexOf(this.current);
    this.focus(all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + step))]);
  }

  /* To the next field that has no answer; false when there is none. */
  goOn() {
    const all = this.#fields();
    const at = all.indexOf(this.current);
    const missing = this.#missing();
    const mark = this.#place.querySelector(".mark");
    const next = missing.find(field => all.indexOf(field) > at) || missing[0]
      || (this.#opinion.mark === null && this.current !== mark ? mark : null);
    this.focus(next);
    return next !== null;
  }

  /* Presses what the digit names in the field that one is in; true when that answers the field. */
  choose(digit) {
    const option = this.current?.querySelector(`[data-option="${digit}"]`);
    if (!option) return false;
    option.focus({ preventScroll: true });
    option.click();
    return option.type === "radio";
  }

  #fields() {
    return [...this.#place.querySelectorAll(".question")].filter(field => !field.closest("[hidden]"));
  }

  #missing() {
    const { labels, facts } = this.#opinion;
    return this.#fields().filter(({ dataset }) => (
      (dataset.unit !== undefined && labels[dataset.unit] === null)
      || (dataset.fact !== undefined && this.#opinion.isOpen(facts[dataset.fact]))
    ));
  }

  /* ---- facts: removed, added, edited ---- */

  get editing() {
    return this.#opinion.editor !== null;
  }

  commit() {
    const { fact: at, unit, category, text: written } = this.#opinion.editor;
    const { facts } = this.#opinion;
    const text = written.trim();
    if (!text) return this.cancel();
    const added = { text, category, unit, claim: null, decision: null, removed: false };
    const fact = at === null ? added : facts[at];
    if (at === null) facts.push(added);
    else if (fact.text !== text || fact.category !== category) Object.assign(fact, { text, category, decision: null });
    this.#opinion.editor = null;
    this.#redraw(unit, fact);
    this.#tell(at === null ? "Added. Is it true?" : "Edited. Is it true?");
  }

  cancel() {
    const { fact: at, unit } = this.#opinion.editor;
    this.#opinion.editor = null;
    this.#redraw(unit, this.#opinion.facts[at]);
  }

  #edit(unit, fact = null) {
    if (this.editing) this.commit();
    const { text, category } = fact || { text: "", category: this.#categories[0] };
    this.#opinion.editor = { fact: fact && this.#opinion.facts.indexOf(fact), unit, text, category };
    this.#set(() => this.#drawUnit(unit));
    const input = this.#section(unit).querySelector("input[type=text]");
    input.focus();
    input.select();
  }

  #toggle(unit, fact) {
    fact.removed = !fact.removed;
    this.#redraw(unit, fact);
    this.#tell(fact.removed ? "Removed: it counts nowhere. 5 restores it." : "Restored.");
  }

  #redraw(unit, fact) {
    this.#set(() => this.#drawUnit(unit));
    const field = fact && this.#place.querySelector(`[data-fact="${this.#opinion.facts.indexOf(fact)}"]`);
    this.focus(field || this.#section(unit).querySelector(".add"));
  }

  #set(change) {
    change();
    this.refresh();
    this.#onChange();
  }

  /* ---- drawing ---- */

  #section(at) {
    return this.#place.querySelector(`[data-section="${at}"]`);
  }

  /* Where there are no sub-sentences, all facts stand together. */
  #unitOf(fact) {
    return Math.min(fact.unit, Math.max(0, this.#shown.units.length - 1));
  }

  #drawUnit(at) {
    const { labels, facts, editor } = this.#opinion;
    const unit = this.#shown.units[at];
    const old = this.#section(at);
    const section = el("section", { class: "sub-sentence card", "data-section": at });
    if (unit) {
      section.append(el("fieldset", { class: "question", "data-unit": at },
        el("legend", null, el("span", { class: "soft" }, `${at + 1} of ${this.#shown.units.length} `), foreign(unit.text.trim(), SHOWN)),
        el("div", { class: "options" }, ...radios(`unit-${at}`, LABELS, labels[at], label => this.#set(() => { labels[at] = label; })))));
    }
    const rows = el("div", { class: "stated" });
    facts.forEach((fact, index) => {
      if (this.#unitOf(fact) === at) rows.append(editor?.fact === index ? this.#editor(index) : this.#fact(at, fact, index));
    });
    rows.append(editor?.unit === at && editor.fact === null ? this.#editor()
      : el("div", { class: "question add" }, button(1, "add a fact", () => this.#edit(at))));
    section.append(rows);
    if (old) old.replaceWith(section);
    else this.#place.append(section);
  }

  #fact(unit, fact, index) {
    const { removed } = fact;
    return el("fieldset", { class: removed ? "question removed" : "question", "data-fact": index },
      el("legend", null, removed ? "removed: " : null, foreign(fact.text, SHOWN), " ",
        el("span", { class: "chip" }, foreign(fact.category, 40)), " ",
        fact.claim === null ? el("span", { class: "chip" }, "added") : null),
      el("div", { class: "options" },
        ...(removed ? [] : radios(`fact-${index}`, DECISIONS, fact.decision, to => this.#set(() => this.#opinion.decide(fact, to)))),
        removed ? null : button(4, "edit", () => this.#edit(unit, fact)),
        button(5, removed ? "restore" : "remove", () => this.#toggle(unit, fact))));
  }

  #editor(index) {
    const { editor } = this.#opinion;
    const categories = [...new Set([editor.category, ...this.#categories])].sort();
    return el("fieldset", { class: "question editor", "data-fact": index },
      el("legend", null, index === undefined ? "A fact to add" : "Edit the fact"),
      el("div", { class: "row" },
        el("label", { class: "grow" }, "Fact", el("input", {
          type: "text", value: editor.text, dir: "auto", autocomplete: "off", maxlength: SHOWN,
          oninput: ({ target }) => this.#set(() => { editor.text = target.value; }),
        })),
        el("label", null, "Category", el("select", {
          onchange: ({ target }) => this.#set(() => { editor.category = target.value; }),
        }, ...categories.map(name => el("option", { value: name, selected: name === editor.category }, name))))),
      el("div", { class: "options" },
        button(null, index === undefined ? "add" : "keep", () => this.commit(), "Enter"),
        button(null, "cancel", () => this.cancel(), "Esc")));
  }
}
