"""What a Ninja build folder of CMake makes of what: pure functions of the texts that CMake and ninja write."""

import collections
import dataclasses
import os
import re


@dataclasses.dataclass(frozen=True)
class Edge:
    """A statement of build.ninja."""
    rule: str
    outputs: tuple
    inputs: tuple  # explicit and implicit: a change of them makes the outputs anew
    after: tuple  # order-only: built before. CMake names all libraries and programs here that a target depends on


def edges_of(text, name_of=str):
    """The edges in the text of a build.ninja."""
    folder = re.search(r"^cmake_ninja_workdir = (.*)$", text, re.MULTILINE)
    text = text.replace("$\n", "").replace("${cmake_ninja_workdir}", folder[1] if folder else "")
    edges = []
    for line in re.findall(r"^build (.+)$", text, re.MULTILINE):
        parts = {"outputs": [], "inputs": [], "after": []}
        part = "outputs"
        for word in re.findall(r"(?:\$.|[^\s$:|])+|\|\||[:|]", line):
            if word in (":", "||"):
                part = "inputs" if word == ":" else "after"
            elif word != "|":
                parts[part].append(re.sub(r"\$(.)", r"\1", word))
        rule, *inputs = parts["inputs"]
        edges.append(Edge(rule, *(tuple(map(name_of, files)) for files in (parts["outputs"], inputs, parts["after"]))))
    return edges


def objects_of(text, name_of=str):
    """{object: files that it read} of what `ninja -t deps` prints. Absolute names, which are those of installed files, are left
    out."""
    objects, names, files = {}, {}, set()
    for line in text.splitlines():
        if line.startswith("    "):
            file = names.get(line) or names.setdefault(line, name_of(line[4:]))
            if not file.startswith("/"):
                files.add(file)
        elif ": #deps " in line:
            files = objects.setdefault(name_of(line.split(": #deps ")[0]), set())
    return objects


def included(text):
    """The files that a source of a unity build consists of, as paths in the repository."""
    return re.findall(r'^#include "(.+)"$', text, re.MULTILINE)


def seconds_of(text):
    """{output: seconds} of a .ninja_log. An output may be there more than once; the longest time is one without ccache."""
    seconds = {}
    for line in text.splitlines():
        if not line.startswith("#") and line.count("\t") == 4:
            begin, end, _, output, _ = line.split("\t")
            seconds[output] = max(seconds.get(output, 0.0), (int(end) - int(begin)) / 1000)
    return seconds


def reached(files, reads, edges):
    """All files that are made from these, directly or not. Order-only inputs make nothing."""
    makes = collections.defaultdict(set)
    for made, inputs in [*reads.items(), *((made, edge.inputs) for edge in edges for made in edge.outputs)]:
        for file in inputs:
            makes[file].add(made)
    seen, todo = set(), list(files)
    while todo:
        new = makes[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


class Links:
    """The libraries and programs of a build, and how far one is from another."""

    def __init__(self, edges, sources):
        self.edges = {edge.outputs[0]: edge for edge in edges if "_LINKER__" in edge.rule}
        self.sources = {name: {file for made in edge.inputs for file in sources.get(made, ())} for name, edge in self.edges.items()}

    def programs(self):
        return {name for name, edge in self.edges.items() if edge.rule.startswith("CXX_EXECUTABLE_")}

    def objects_in(self, folder):
        """The objects of the targets that the CMakeLists.txt of this folder of the build defines."""
        return {file for edge in self.edges.values() for file in edge.inputs if file.startswith(folder + "/CMakeFiles/")}

    def homes(self, file):
        """The libraries and programs that a file belongs to: those that compile it, or else those whose sources are nearest."""
        homes = {name for name, sources in self.sources.items() if file in sources}
        folder = os.path.dirname(file)
        while folder and not homes:
            homes = {name for name, sources in self.sources.items() if any(source.startswith(folder + "/") for source in sources)}
            folder = os.path.dirname(folder)
        return homes

    def distance(self, program, homes):
        """How many libraries lie between a program and the nearest home. CMake names all libraries of a program in the program's
        edge, so that a path has always one step. Libraries lie between that depend on the home themselves."""
        if program in homes:
            return 0
        libraries = [name for name in self.edges[program].inputs if name in self.edges]
        between = [sum(home in self.edges[name].after for name in libraries) for home in homes.intersection(libraries)]
        return 1 + min(between, default=len(libraries))
