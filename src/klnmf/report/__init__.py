"""One self-contained HTML page about a fitted model; it needs the extra ``report`` (jinja2)."""

from klnmf.report.page_writer import write_report

__all__ = ["write_report"]
