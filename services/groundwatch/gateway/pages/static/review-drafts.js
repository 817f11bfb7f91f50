/* Keeps what is written and not completed: in the browser at once, at the gateway soon after each change. */

const DELAY = 400;

export class DraftSaver {
  #name;
  #read;
  #save;
  #onState;
  #onRefused;
  #timer = 0;
  #changed = false;
  #saving = null;

  /* `name` is the browser's own copy's, `read` gives the draft as it is, `save` sends it; `onRefused` hears why
     the gateway does not want it. */
  constructor(name, { read, save, onState, onRefused }) {
    this.#name = name;
    this.#read = read;
    this.#save = save;
    this.#onState = onState;
    this.#onRefused = onRefused;
  }

  get unsaved() {
    return this.#changed || this.#saving !== null;
  }

  /* What an earlier page could not send. */
  static kept(name) {
    try {
      return JSON.parse(localStorage.getItem(name));
    } catch {
      return null;
    }
  }

  change() {
    this.#changed = true;
    this.#keep();
    this.#onState("changed");
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush().catch(this.#onRefused), DELAY);
  }

  /* Resolves when all changes are at the gateway; rejects when it refuses them. */
  async flush() {
    clearTimeout(this.#timer);
    while (this.unsaved) {
      if (this.#saving === null) {
        this.#changed = false;
        this.#onState("saving");
        this.#saving = this.#save().finally(() => { this.#saving = null; });
      }
      await this.#saving;
    }
    this.forget();
    this.#onState("saved");
  }

  /* The item is completed, or somebody else's: there is nothing more to save. */
  stop() {
    clearTimeout(this.#timer);
    this.#changed = false;
    this.forget();
  }

  forget() {
    try {
      localStorage.removeItem(this.#name);
    } catch { /* A browser that keeps nothing has nothing to forget. */ }
  }

  #keep() {
    try {
      localStorage.setItem(this.#name, JSON.stringify(this.#read()));
    } catch { /* Full, or not allowed: the gateway's copy must do. */ }
  }
}
