"""`groundwatch dataset`: benchmarks built as their papers built them, from annotated images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from pydantic import ValidationError

from groundwatch.cli.options import ConfigOption, JsonOption
from groundwatch.cli.output import print_json, progress_bar, render_numbers
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.evaluation.datasets.pope import build_pope
from groundwatch.evaluation.datasets.valor import MEASURES, choose_valor
from groundwatch.evaluation.datasets.vlm2 import build_vlm2
from groundwatch.models.openai.settings import ChatSettings
from groundwatch.protocols.pope.questions import PER_IMAGE, Strategy
from groundwatch.protocols.trihe.asking import QUESTIONS, RELATIONS
from groundwatch.protocols.valor.benchmark import Kind
from groundwatch.runtime.settings import Settings
from groundwatch.section import in_words
from groundwatch.system.connecting import prepare, run
from groundwatch.terminal import Console, Table, box, lines

QuestionsOption = Annotated[
    Path, typer.Option("--out", help="Write the questions here, one a line.", show_default=False)
]
SeedOption = Annotated[int, typer.Option("--seed", help="The same seed draws the same questions.")]


def pope(
    file: Annotated[
        Path, typer.Argument(help="Annotated images (JSON lines: image, objects).", show_default=False)
    ],
    out: QuestionsOption,
    strategy: Annotated[Strategy, typer.Option(help="How absent objects are drawn.")] = "random",
    per_image: Annotated[
        int, typer.Option(min=1, help="Objects of each image that are asked for, and as many absent ones.")
    ] = PER_IMAGE,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Questions about objects that an image has and has not (POPE, section 4), in the published format."""
    found = build_pope(file, out, strategy, seed=seed, per_image=per_image)
    print_json(found) if as_json else render_numbers(found, Console())


def vlm2(
    file: Annotated[
        Path,
        typer.Argument(
            help="Sequences (JSON lines: sequence, cues of image, subject, attribute, value).",
            show_default=False,
        ),
    ],
    out: QuestionsOption,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Fine-grained yes/no questions from the cues that tell a sequence's images apart, by template."""
    found = build_vlm2(file, out, seed=seed)
    print_json(found) if as_json else render_numbers(found, Console())


def valor(
    scene_graphs: Annotated[
        Path, typer.Argument(help="Scene graphs in GQA's format (JSON).", show_default=False)
    ],
    kind: Annotated[
        Kind, typer.Option(help="What comes along with an object: another one, a quality, a relation.")
    ] = Kind.OBJECT,
    measure: Annotated[
        str, typer.Option(help=f"Appendix B's measure to rank by: {', '.join(MEASURES)}.")
    ] = "highest",
    top: Annotated[int, typer.Option(min=1, help="How many of the most skewed objects.")] = 10,
    least: Annotated[int, typer.Option(min=1, help="Leave out objects that fewer images have.")] = 5,
    by_frequency: Annotated[
        bool, typer.Option("--by-frequency", help="Step 1 by frequencies instead of probabilities.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the selection here, one rare feature of an object a line.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose images that lack what usually comes along (VALOR-Bench, section 3.1.2 and Appendix B)."""
    found = choose_valor(
        scene_graphs, out, kind=kind, measure=measure, top=top, least=least, by_frequency=by_frequency
    )
    if as_json:
        print_json(found)
    else:
        _render_valor(found, Console())


def tri_he(
    images: Annotated[
        Path, typer.Argument(help="A folder of images, named by their ids.", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(help="The benchmark's file; images that it has already are not asked about again."),
    ],
    scene_graphs: Annotated[
        Path | None,
        typer.Option(help="Their scene graphs in GQA's format (JSON).", show_default=False),
    ] = None,
    relations: Annotated[
        int, typer.Option(min=0, help="Different relations that an image's graph must have.")
    ] = RELATIONS,
    questions: Annotated[int, typer.Option(min=1, max=50, help="Questions about each image.")] = QUESTIONS,
    limit: Annotated[int | None, typer.Option(min=1, help="So many images at most.")] = None,
    url: Annotated[
        str, typer.Option(help="An OpenAI-compatible endpoint of a model that looks at images, with /v1.")
    ] = "",
    model: Annotated[str, typer.Option(help="The model's name there.")] = "",
    api_key_env: Annotated[
        str, typer.Option(help="The variable that holds the endpoint's key.")
    ] = "OPENAI_API_KEY",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a vision-language model write questions about images (Tri-HE, appendix E.2): a draft to check.

    The model is the one of `--url` and `--model`, else of the setting `verification.llm`.
    """
    from groundwatch.evaluation.datasets.tri_he import build_tri_he

    settings = prepare(config)
    with progress_bar() as bar:
        task = bar.add_task("asking for questions", total=None)
        built = run(
            build_tri_he(
                images,
                out,
                scene_graphs,
                _chat(settings, url, model, api_key_env),
                relations=relations,
                questions=questions,
                limit=limit,
                limits=settings.gateway.intake,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        )
    told = msgspec.to_builtins(built)
    if as_json:
        print_json(told)
    else:
        render_numbers(told, Console())
    if built.failed:
        raise CheckFailed(
            f"{sum(built.failed.values())} images have no questions ({built.trouble}): "
            f"the same command again asks for those that {out} lacks"
        )


def _chat(settings: Settings, url: str, model: str, api_key_env: str) -> ChatSettings:
    if not url and not model:
        if settings.verification.llm is None:
            raise UsageError(
                "name a model that looks at images: --url and --model, or the setting verification.llm"
            )
        return settings.verification.llm
    try:
        return ChatSettings(base_url=url, model=model, api_key_env=api_key_env)
    except ValidationError as error:
        raise UsageError(f"--url and --model: {in_words(error)}") from error


def _render_valor(found: dict[str, Any], console: Console) -> None:
    title = (
        f"{found['scenes']} scenes with {found['objects']} objects; {found['dependent']} are what some "
        f"{found['kind']} depends on most; of these the most skewed by {found['measure']}"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("object")
    for name in ("in images", *(name.replace("_over_", " −\n") for name in MEASURES)):
        table.add_column(lines(*name.split("\n")), justify="right")
    table.add_column("usual")
    table.add_column("rare")
    table.add_column(lines("chosen", "images"), justify="right")
    for one in found["chosen"]:
        table.add_row(
            one["object"],
            str(one["images_with_it"]),
            *(f"{one['skew'][name]:.3f}" for name in MEASURES),
            _named(one["usual"]),
            _named(one["rare"]),
            str(len(one["images"])),
        )
    console.print(table)
    console.print(f"{found['images']} images in all.")


def _named(features: list[dict[str, Any]]) -> str:
    shown = [one["value"] for one in features[:3]]
    return ", ".join(shown) + (f" and {len(features) - 3} more" if len(features) > 3 else "")
