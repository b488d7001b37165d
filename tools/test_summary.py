"""Prints the skipped tests with their reasons, the failed ones, and one closing line with the counts.

Usage: test_summary.py RESULTS.xml    (the JUnit file that ctest writes)
Exit status: 0 if something passed and nothing failed, 1 otherwise.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree


def skip_reason(case):
    """The reason a test gave: GoogleTest prints it on the line after 'Skipped'."""
    output = case.findtext("system-out") or ""
    match = re.search(r"Skipped\n(.+)", output) or re.search(r"[Ss][Kk][Ii][Pp][^:]*: *(.+)", output)
    return match.group(1).strip() if match else "gave no reason"


def main(path):
    try:
        cases = ElementTree.parse(path).getroot().findall("testcase")
    except (OSError, ElementTree.ParseError) as error:
        print(f"no test results: {error}", file=sys.stderr)
        cases = []
    passed, failed, skipped = [], [], []
    for case in cases:
        if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped.append(case)
        elif case.find("failure") is not None or case.get("status") == "fail":
            failed.append(case)
        else:
            passed.append(case)
    for case in skipped:
        print(f"skipped: {case.get('name')}: {skip_reason(case)}")
    for case in failed:
        print(f"FAILED: {case.get('name')}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
