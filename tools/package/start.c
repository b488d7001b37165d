// The programs of the archive that brings its own C library: bin/NAME starts lib/muster/NAME by the loader beside it.
// This program is linked statically, so it runs on any Linux, and finds the folder by its own place, also through links.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char kLoader[] = "ld-linux-x86-64.so.2";

int main(int argc, char** argv) {
  char own[PATH_MAX], folder[PATH_MAX + 16], loader[PATH_MAX + 64], program[PATH_MAX + 64];
  const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  if (length < 0) {
    fprintf(stderr, "%s: cannot read /proc/self/exe: %s; mount /proc\n", argv[0], strerror(errno));
    return 127;
  }
  own[length] = '\0';
  char* const name = strrchr(own, '/');
  *name = '\0';
  char* const bin = strrchr(own, '/');
  if (bin == NULL) return 127;
  *bin = '\0';
  snprintf(folder, sizeof folder, "%s/lib/muster", own);
  snprintf(loader, sizeof loader, "%s/%s", folder, kLoader);
  snprintf(program, sizeof program, "%s/%s", folder, name + 1);
  char** const words = calloc((size_t)argc + 8, sizeof *words);
  if (words == NULL) return 127;
  int n = 0;
  words[n++] = loader;
  words[n++] = "--library-path";
  words[n++] = folder;
  words[n++] = "--argv0";
  words[n++] = argc > 0 ? argv[0] : name + 1;
  words[n++] = program;
  for (int i = 1; i < argc; ++i) words[n++] = argv[i];
  execv(loader, words);
  fprintf(stderr, "%s: cannot start %s: %s; unpack the whole archive, bin/ and lib/ side by side\n", words[4], loader,
          strerror(errno));
  return 127;
}
