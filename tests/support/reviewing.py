"""A queue of answers to review, and a reviewer who works by keyboard alone."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Browser, Page, expect

from groundwatch.events import Decision, JudgedClaim, Label, SubSentence
from groundwatch.keys import response_key
from groundwatch.reviews.queues import Item, Items, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import Bus

QUEUE = "first-look"
ANSWER = "A dog sits on a mat. It is red. It seems happy."
CLAIMS = (
    ("There is a dog.", "entity", 0, Decision.SUPPORTED),
    ("The dog sits on a mat.", "relation", 0, Decision.REFUTED),
    ("The mat is red.", "color", 1, Decision.SUPPORTED),
)


def units_of(answer: str) -> tuple[SubSentence, ...]:
    found, start = [], 0
    for part in answer.split(". "):
        end = min(len(answer), start + len(part) + 1)
        label = Label.ANALYTICAL if "seems" in part else Label.DESCRIPTIVE
        found.append(SubSentence(start=start, end=end, text=answer[start:end], label=label))
        start = end + 1
    return tuple(found)


class Reviewing:
    """Records answers with their outcomes, and puts them into one queue."""

    def __init__(self, gateway: Any, publish: Any, response: Any, image: bytes, bus: Bus) -> None:
        self.gateway = gateway
        self._publish = publish
        self._response = response
        self._image = image
        self.queues = Queues(bus)
        self.items = Items(bus)
        self._added = 0

    async def create(self, **spec: Any) -> None:
        await self.queues.create(QueueSpec(**{"name": QUEUE, "protocol": "faithscore", "rule": "all"} | spec))

    async def add(self, name: str, answer: str = ANSWER, claims: Any = CLAIMS, **item: Any) -> str:
        """An item of the queue; its key. They are given in the order in which they are added."""
        headers = {"Content-Type": "image/png"}
        stored = await self.gateway.http.post("/v1/images", content=self._image, headers=headers)
        images = [stored.json()["sha256"]]
        sent = self._response(id=name, answer=answer, images=images, prompt="Describe the image.")
        assert (await self.gateway.post(sent)).status_code == 202
        await self._publish(
            name,
            units=units_of(answer),
            claims=tuple(
                JudgedClaim(text=text, category=category, unit=unit, decision=decision, probability=0.9)
                for text, category, unit, decision in claims
            ),
            images=tuple(images),
        )
        self._added += 1
        key = response_key("default", name)
        made = Item(
            queue=QUEUE,
            key=key,
            id=name,
            tenant="default",
            model="heron-7b",
            protocol="faithscore",
            order=self._added / 1000,
            **{"probability": 0.25} | item,
        )
        assert await self.items.create(made)
        return key

    def address(self, path: str = f"/review/{QUEUE}") -> str:
        return f"{str(self.gateway.http.base_url).rstrip('/')}{path}"

    async def opinions(self) -> list[Any]:
        from groundwatch.reviews.opinions import Opinions

        return await Opinions(self.gateway.bus).latest()


class Reviewer:
    """Somebody before the page who only presses keys."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.message = page.locator("#message")
        self.saved = page.locator("#saved")
        self.left = page.locator("#left")

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.page.keyboard.press(key)

    async def write(self, text: str) -> None:
        await self.page.keyboard.type(text)

    async def answer(self) -> str:
        return (await self.page.locator("#answer").inner_text()).strip()

    async def sees(self, answer: str) -> None:
        await expect(self.page.locator("#answer")).to_have_text(answer)

    async def is_at(self, legend: str) -> None:
        """The field that has the focus."""
        field = self.page.locator(".question:focus-within legend")
        await expect(field).to_contain_text(legend)


async def reviewer_at(
    browser: Browser, url: str, name: str = "ann", width: int = 1024, **options: Any
) -> Reviewer:
    context = await browser.new_context(viewport={"width": width, "height": 900}, **options)
    page = await context.new_page()
    await page.goto(f"{url}?reviewer={name}")
    reviewer = Reviewer(page)
    await page.wait_for_selector("#workbench:not([hidden]), #finished:not([hidden])")
    return reviewer
