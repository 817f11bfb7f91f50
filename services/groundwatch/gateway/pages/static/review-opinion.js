/* What a reviewer says of one item, as data. A fact's `claim` is its number among the judge's claims, null for
   one that the reviewer added. */

export const LABELS = { descriptive: "descriptive", analytical: "analytical" };
export const DECISIONS = { supported: "true", refuted: "false", undecided: "undecidable" };
export const MARKS = {
  1: "nearly all is wrong", 2: "much is wrong", 3: "some is wrong", 4: "little is wrong", 5: "all is right",
};

const IDLE = 60;

export class Opinion {
  /* `shown` is the item as the gateway gives it; `draft` is what was said of it before, or null. */
  constructor(shown, draft) {
    this.labels = shown.units.map((_, at) => draft?.labels?.[at] ?? null);
    this.facts = shown.claims.map(({ index, text, category, unit }) => ({
      text, category, unit, claim: index, decision: null, removed: false,
    }));
    for (const said of draft?.facts || []) {
      const fact = { unit: 0, claim: null, removed: false, ...said };
      const at = fact.claim === null ? -1 : this.facts.findIndex(other => other.claim === fact.claim);
      if (at >= 0) this.facts[at] = fact;
      else if (fact.claim === null) this.facts.push(fact);
    }
    this.mark = draft?.mark ?? null;
    this.editor = draft?.editor ?? null;
    this.seconds = draft?.seconds || 0;
    this.looking();
  }

  /* Time counts from here on: the page was away. */
  looking() {
    this.looked = performance.now();
  }

  spend() {
    const now = performance.now();
    this.seconds += Math.min(IDLE, (now - this.looked) / 1000);
    this.looked = now;
  }

  /* Facts of an analytical sub-sentence say nothing of the image: they count nowhere. */
  counts(fact) {
    return !fact.removed && this.labels[fact.unit] !== "analytical";
  }

  isOpen(fact) {
    return this.counts(fact) && fact.decision === null;
  }

  /* Whoever decides a fact says that its sub-sentence describes. */
  decide(fact, decision) {
    fact.decision = decision;
    if (this.labels[fact.unit] === null) this.labels[fact.unit] = "descriptive";
  }

  get counted() {
    return this.facts.filter(fact => this.counts(fact)).length;
  }

  get open() {
    return this.facts.filter(fact => this.isOpen(fact)).length;
  }

  get unmarked() {
    return this.labels.filter(label => label === null).length;
  }

  draft() {
    const { labels, facts, mark, editor, seconds } = this;
    return { labels, facts, mark, editor, seconds: Math.round(seconds), changed: Date.now() };
  }

  body() {
    return {
      labels: this.labels,
      facts: this.facts.map(({ text, category, unit, claim, decision, ...fact }) => ({
        text, category, unit, claim, decision: decision ?? "undecided", removed: !this.counts({ unit, ...fact }),
      })),
      mark: this.mark,
      seconds: Math.round(this.seconds),
    };
  }
}

export const newest = (one, other) => (other && (!one || (other.changed || 0) > (one.changed || 0)) ? other : one);
