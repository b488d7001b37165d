"""Writes a C++ header with the texts of files.

Usage: embed_texts.py HEADER NAMESPACE FOLDER FILE...

The header has `inline constexpr EmbeddedText kTexts[]`, a name (FILE as given) and a text each.
"""

import pathlib
import sys

MOST = 16_000  # characters of a literal that every compiler takes


def main():
    header, namespace, folder, *files = sys.argv[1:]
    lines = ["#pragma once", "", "#include <string_view>", "", f"namespace {namespace} {{", "",
             "struct EmbeddedText {", "  std::string_view name, text;", "};", "", "inline constexpr EmbeddedText kTexts[] = {"]
    for file in files:
        text = (pathlib.Path(folder) / file).read_text(encoding="utf-8")
        if len(text) > MOST or ')text"' in text:
            sys.exit(f"{file}: too long for a literal, or it holds the end of one")
        lines.append(f'    {{"{file}", R"text({text})text"}},')
    lines += ["};", "", f"}}  // namespace {namespace}", ""]
    out = pathlib.Path(header)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
