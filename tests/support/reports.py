"""A report's Markdown, read."""


def rows(text: str, title: str) -> dict[str, list[str]]:
    """The rows of a table of the Markdown by their first cell."""
    lines = text.split(f"**{title}**\n\n")[1].split("\n\n")[0].split("\n")[2:]
    return {
        cells[0].replace("*", ""): cells[1:]
        for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    }
