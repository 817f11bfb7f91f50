/* The images of an item, large: a click or `z` looks closer, dragging moves what is seen. */

const STEPS = [1, 2, 4];

export class ImageViewer {
  #views;
  #shown = 0;

  constructor(place, digests) {
    this.#views = digests.map((digest, at) => new View(digest, at, digests.length));
    place.replaceChildren(...this.#views.map(view => view.element));
    this.#views.forEach((view, at) => view.element.addEventListener("pointerenter", () => { this.#shown = at; }));
    if (!digests.length) place.append("There is no image.");
  }

  zoom() {
    this.#views[this.#shown]?.zoom();
  }

  fit() {
    for (const view of this.#views) view.set(0);
  }
}

class View {
  #step = 0;
  #image = new Image();
  #view = document.createElement("div");
  #button = document.createElement("button");
  #dragged = false;

  constructor(digest, at, of) {
    const name = of > 1 ? `Image ${at + 1} of ${of}` : "The image";
    this.#image.src = `/v1/images/${digest}`;
    this.#image.alt = `${name} that the answer is about`;
    this.#image.draggable = false;
    this.#image.addEventListener("error", () => this.element.classList.add("absent"));
    this.#view.className = "view";
    this.#view.tabIndex = 0;
    this.#view.setAttribute("role", "group");
    this.#view.setAttribute("aria-label", `${name}; arrow keys move what is seen`);
    this.#view.append(this.#image);
    this.#button.type = "button";
    this.#button.className = "plain";
    this.#button.addEventListener("click", () => this.zoom());
    this.element = document.createElement("figure");
    this.element.append(this.#view, this.#button);
    this.#view.addEventListener("pointerdown", event => this.#drag(event));
    this.#view.addEventListener("click", event => { if (!this.#dragged) this.zoom(event); });
    this.set(0);
  }

  /* Towards the place that was clicked, the middle without one. */
  zoom(event = null) {
    const box = this.#image.getBoundingClientRect();
    const x = event ? (event.clientX - box.left) / box.width : 0.5;
    const y = event ? (event.clientY - box.top) / box.height : 0.5;
    this.set((this.#step + 1) % STEPS.length);
    this.#view.scrollTo(
      x * this.#view.scrollWidth - this.#view.clientWidth / 2,
      y * this.#view.scrollHeight - this.#view.clientHeight / 2,
    );
  }

  set(step) {
    this.#step = step;
    const times = STEPS[step];
    this.#view.classList.toggle("zoomed", times > 1);
    this.#image.style.width = times > 1 ? `${100 * times}%` : "";
    const next = STEPS[(step + 1) % STEPS.length];
    this.#button.textContent = next > 1 ? `Zoom ${next}×` : "Whole image";
  }

  #drag(down) {
    this.#dragged = false;
    if (down.pointerType !== "mouse") return;
    const { scrollLeft, scrollTop } = this.#view;
    const move = event => {
      const [x, y] = [event.clientX - down.clientX, event.clientY - down.clientY];
      if (Math.hypot(x, y) > 4) this.#dragged = true;
      this.#view.scrollTo(scrollLeft - x, scrollTop - y);
    };
    const up = () => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", up);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", up);
  }
}
