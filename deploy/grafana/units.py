"""Numbers as Grafana writes them, for the pictures."""

from __future__ import annotations


def written(value: float, unit: str, decimals: int | None = None) -> str:
    """The value with its unit; as many decimals as are useful, unless they are given."""
    match unit:
        case "percentunit":
            return _plain(100 * value, decimals) + " %"
        case "s":
            return _seconds(value, decimals)
        case "bytes":
            return _scaled(value, 1024, (" B", " KiB", " MiB", " GiB"), decimals)
        case "currencyUSD":
            return "$" + _plain(value, decimals)
        case "ops" | "reqps":
            return _plain(value, decimals) + "/s"
        case "short":
            return _scaled(value, 1000, ("", " K", " Mil", " Bil"), decimals)
    return _plain(value, decimals)


def _seconds(value: float, decimals: int | None) -> str:
    if 0 < value < 1:
        return f"{1000 * value:.3g} ms"
    return (f"{value:.3g}" if value < 1000 else f"{value:.0f}") + " s"


def _scaled(value: float, step: int, names: tuple[str, ...], decimals: int | None) -> str:
    at = 0
    while abs(value) >= step and at < len(names) - 1:
        value, at = value / step, at + 1
    return _plain(value, decimals if not at else max(1, decimals or 0)) + names[at]


def _plain(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
