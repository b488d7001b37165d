#include <array>

#include "data/prepare/text/fixture.h"

namespace data::prepare {
namespace {

constexpr std::array<std::string_view, 20> kPages{
    R"roff(.TH SORTLINES 1
.SH NAME
sortlines \- sort the lines of text files
.SH DESCRIPTION
Writes the lines of all given files in sorted order. Lines are compared byte by byte unless the option
\fB\-n\fR asks for numbers.
.PP
Large files are sorted in pieces that are kept in temporary files, so the memory that the program needs is
small.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH COUNTWORDS 1
.SH NAME
countwords \- count words and lines of a text
.SH DESCRIPTION
Prints how many lines, words and bytes each file has, and the sum of all of them when there is more than one
file.
.PP
A word is a longest run of characters that are not white space.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH COPYTREE 1
.SH NAME
copytree \- copy a folder with everything below it
.SH DESCRIPTION
Copies files, folders and links from one place to another and keeps their times and permissions.
.PP
A copy that was interrupted can be started again. Files that are there already and have the same size and time
are not copied twice.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH FINDNAME 1
.SH NAME
findname \- find files by parts of their name
.SH DESCRIPTION
Walks through folders and prints the path of each file whose name contains the given text.
.PP
With the option \fB\-d\fR it prints folders, too. Folders that cannot be read are named on standard error.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH SPLITFILE 1
.SH NAME
splitfile \- cut a large file into smaller parts
.SH DESCRIPTION
Reads one file and writes parts of equal size that are numbered in their order.
.PP
The parts can be joined again with the command \fBcat\fR. A part never begins within a line if the option
\fB\-l\fR is given.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH SHOWTIME 1
.SH NAME
showtime \- print the time in another time zone
.SH DESCRIPTION
Prints date and time of a place as they are now or as they were at a given moment.
.PP
Time zones are named as the system names them. Without an argument the local time zone is used.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH PACKZIP 1
.SH NAME
packzip \- compress files into one archive
.SH DESCRIPTION
Adds files to an archive and compresses each of them. Files that do not become smaller are stored as they are.
.PP
An archive can be listed and unpacked by the same program on any system.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH WAITPORT 1
.SH NAME
waitport \- wait until a server accepts connections
.SH DESCRIPTION
Tries to connect to a port of a host again and again until the server accepts a connection or the time is
over.
.PP
Scripts use it to start a program only after the server that it needs is there.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH OPENLOCK 2
.SH NAME
openlock \- open a file and lock it for this process
.SH DESCRIPTION
Opens the file and takes an exclusive lock on it. If another process has the lock, the call waits until that
process gives it back or ends.
.PP
The lock is given back when the last descriptor of the file is closed.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH READALL 2
.SH NAME
readall \- read a whole number of bytes from a descriptor
.SH DESCRIPTION
Reads from a file descriptor until so many bytes have arrived, the end of the file is reached, or an error
occurs.
.PP
Interrupted calls are repeated. The call returns the number of bytes that were read.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH HASHBYTES 3
.SH NAME
hashbytes \- compute a hash of bytes in memory
.SH DESCRIPTION
The function computes a hash of 64 bits over a block of memory. Equal blocks have equal hashes on every
machine.
.PP
The hash finds damage. It does not protect against people who change data on purpose.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH RINGQUEUE 3
.SH NAME
ringqueue \- queue of fixed size between two threads
.SH DESCRIPTION
A ring holds a fixed number of elements. One thread adds elements and another thread takes them, and neither
of them needs a lock.
.PP
Adding to a full ring fails at once, so that the thread can do something else.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH PARSEINT 3
.SH NAME
parseint \- convert text to a whole number
.SH DESCRIPTION
The function reads a decimal number at the start of a text, stores it, and returns how many characters belong
to it.
.PP
Numbers that do not fit are an error, and the stored value is then not changed.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH RANDOMDEV 4
.SH NAME
randomdev \- device of random numbers
.SH DESCRIPTION
Reading this device gives random bytes that the kernel collects from events of the hardware.
.PP
A program that reads right after the start of the system may have to wait until enough events were seen.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH HOSTS.LIST 5
.SH NAME
hosts.list \- format of the list of hosts
.SH DESCRIPTION
Each line of the file names one host: its address, white space, its name, and further names that mean the same
host.
.PP
Lines that begin with a number sign are comments. The first line that matches is used.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH QUEUE.CONF 5
.SH NAME
queue.conf \- configuration of the print queue
.SH DESCRIPTION
The file has one line for each queue with its name, the printer that serves it, and the largest size of a
document.
.PP
The printing system reads the file when it starts and when it is asked to read it again.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH SNAKE 6
.SH NAME
snake \- game of a growing snake
.SH DESCRIPTION
Lead a snake over the screen to its food. With each meal the snake becomes longer, and the game ends when it
bites itself or the wall.
.PP
The best results of all players are kept in one file.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH UNITS.TABLE 7
.SH NAME
units.table \- table of units and how they convert
.SH DESCRIPTION
This page lists the units of length, mass and time that programs of this system accept, and the factor by
which each is converted.
.PP
Names of units are written in small letters.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH MOUNTALL 8
.SH NAME
mountall \- mount every file system of the table
.SH DESCRIPTION
Reads the table of file systems and mounts each of them that is not mounted yet, in the order in which they
depend on each other.
.PP
A file system that fails does not keep the others from being mounted.
.SH SEE ALSO
.BR intro (1)
)roff",
    R"roff(.TH LOGSERVER 8
.SH NAME
logserver \- receive log messages from other machines
.SH DESCRIPTION
The server listens on a port, receives messages of other machines and writes them to one file for each of
them.
.PP
Messages that arrive too quickly are counted and dropped, and a line of the log tells how many were lost.
.SH SEE ALSO
.BR intro (1)
)roff"};

}  // namespace

std::span<const std::string_view> fixture_pages() {
  return kPages;
}

}  // namespace data::prepare
