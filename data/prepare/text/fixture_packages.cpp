#include "data/prepare/text/fixture.h"

namespace data::prepare {
namespace {

constexpr std::string_view kPackages = R"deb822(Package: userkeep
Section: admin
Description: keeps lists of users in step between machines
 Reads one list of accounts and groups and creates, changes and locks users on each machine so that all of them
 agree. A dry run shows what would change. Passwords are never written to the log.

Package: bootnote
Section: admin
Description: writes down why the system was started
 Stores the reason, the kernel and the time of each boot in a small table. Administrators see at a glance which
 machine restarted by itself and which was restarted by a person.

Package: diskguard
Section: admin
Description: warns before a file system is full
 Measures how quickly each mounted file system fills and sends mail to the administrator while there are still
 some days left. Thresholds may differ for each mount point.

Package: rootwatch
Section: admin
Description: reports changes of important system files
 Compares permissions, owners and checksums below /etc and /usr with a stored list and reports each difference to
 root. The list can be kept on read-only media.

Package: cronview
Section: admin
Description: shows the jobs of all users in one timetable
 Collects the crontabs of every user and of the system and prints when which command will run next. Jobs that
 never run because of a mistake in their line are marked.

Package: quotamail
Section: admin
Description: tells users that their quota is nearly used
 Reads disk quotas each night and sends each user above a limit a letter that lists the largest folders. The text
 of the letter is a template of the administrator.

Package: packdiff
Section: admin
Description: compares the packages of two systems
 Prints which packages are installed on one system and not on the other, and whose versions differ. Works with a
 saved list, so the other machine need not be reachable.

Package: logturn
Section: admin
Description: rotates and packs log files of the system
 Renames log files by date, compresses old ones and deletes those above an age or size. Services can be told to
 open their log file again after a rotation.

Package: sudotrail
Section: admin
Description: keeps a record of privileged commands
 Writes each command that was run with the rights of root, with user, time and folder, to a file that only grows.
 A report for each week is sent to the administrator.

Package: unitcheck
Section: admin
Description: checks the configuration of system services
 Reads service units, finds settings that have no effect and dependencies that form a circle, and explains how
 each can be repaired before the system is restarted.

Package: castlefall
Section: games
Description: strategy game about the siege of a castle
 Build walls, hire archers and hold the gate until the winter comes. Games can be played against the computer at
 three levels or against a friend at the same keyboard.

Package: wordladder
Section: games
Description: puzzle game with chains of words
 Change one letter at a time until the first word of the puzzle has become the last one. The game contains two
 thousand puzzles and counts your moves.

Package: moonrace
Section: games
Description: racing game on the hills of the moon
 Drive a rover over dunes and craters with little gravity. Players collect fuel, jump over rocks and try to beat
 the best lap of the other players.

Package: tilerain
Section: games
Description: falling blocks game for the terminal
 Turn and move falling tiles so that they fill whole rows. The speed grows with each level. High scores are kept
 for all players of a machine.

Package: dungeonlamp
Section: games
Description: role playing game in dark caves
 Explore caves that are different in each game, fight monsters, find treasure and watch the oil of your lamp. The
 hero who returns with the crown wins the game.

Package: cardtable
Section: games
Description: collection of card games for one player
 Contains patience games from Klondike to Spider with rules, hints and an unlimited undo. Statistics show how
 many games each player has won.

Package: checkersmate
Section: games
Description: board game of checkers with an opponent
 Play checkers on a board of eight or ten squares against a computer opponent that looks nine moves ahead, or
 watch two levels of it play each other.

Package: penguinleap
Section: games
Description: jump and run game with a penguin
 Lead a small penguin over ice floes, avoid seals and collect fish. Forty levels with music, hidden rooms and a
 monster at the end of each world.

Package: quizbell
Section: games
Description: quiz game for a whole party
 Asks questions of twenty subjects. Each player has a key as a bell, and the fastest player answers first. New
 questions are plain text files.

Package: mazechase
Section: games
Description: arcade game of a chase in a maze
 Eat all the seeds in a maze while four ghosts chase you. A bonus fruit turns the chase around for a few seconds.
 Levels can be drawn with an editor.

Package: pixelbrush
Section: graphics
Description: painting program for small pictures
 Draw icons and sprites pixel by pixel with brushes, layers and a palette of colors. Animations of several frames
 can be saved as one image.

Package: photosort
Section: graphics
Description: sorts photographs by date and camera
 Reads the date in each image and moves the photo into a folder of its year and month. Pictures that look alike
 are shown side by side.

Package: vectorpen
Section: graphics
Description: editor for vector drawings
 Draws lines, curves and text that can be scaled without loss. Objects can be grouped, filled with gradients and
 exported as an image of any size.

Package: rawdevelop
Section: graphics
Description: converts raw photos of digital cameras
 Develops raw image files with settings for exposure, white balance and noise. Many photos can be converted with
 the same settings at once.

Package: panostitch
Section: graphics
Description: joins photographs to a panorama
 Finds points that overlapping photos have in common, corrects the lens and blends the images into one wide
 picture without visible borders.

Package: scanpage
Section: graphics
Description: scans paper into image files
 Controls a scanner, cuts the picture to the page, straightens it and saves it as an image or as a document of
 several pages.

Package: colorpick
Section: graphics
Description: shows the color below the mouse pointer
 Displays the color of any pixel of the screen as numbers in several color spaces and keeps a palette of the
 colors that were picked.

Package: meshview
Section: graphics
Description: viewer for models of three dimensions
 Shows meshes of triangles with light and texture. The model can be turned with the mouse, measured and saved as
 an image.

Package: thumbmaker
Section: graphics
Description: makes small previews of images
 Creates thumbnails for folders of pictures in the background. The previews are as large as the file manager
 wants them, and keep the colors of the photo.

Package: plotpaper
Section: graphics
Description: draws rulers, grids and graph paper
 Prints graph paper with lines, dots or circles of any distance and color. The drawing is a vector image that can
 be edited further.

Package: portwatch
Section: net
Description: shows which programs use the network
 Lists open ports and connections with their program, the address of the other side and the traffic of each
 second. Connections can be filtered by protocol.

Package: mailfetch
Section: net
Description: fetches mail from remote servers
 Connects to mail servers over an encrypted connection, downloads new messages and hands them to the local mail
 system. Several accounts are polled in turn.

Package: webmirror
Section: net
Description: copies web sites for reading without a network
 Follows the links of a site up to a depth, downloads pages and images over HTTP and changes the links so that
 the copy works locally.

Package: dnsprobe
Section: net
Description: asks name servers and compares their answers
 Sends queries for a domain to many DNS servers, prints the answers in a table and marks servers whose records
 are old.

Package: tunnelkeep
Section: net
Description: keeps an encrypted tunnel to a server open
 Starts a tunnel, watches it and connects again when the network was gone. Ports of the remote host appear on the
 local machine.

Package: chatwire
Section: net
Description: client for chat networks in the terminal
 Connects to several chat servers at the same time, with channels, private messages and encrypted connections.
 Scripts can answer messages.

Package: ftpdrop
Section: net
Description: small server that receives files
 Offers a folder to clients on the local network over FTP. Each client may upload files and see its own.
 Bandwidth can be limited for each address.

Package: pinggraph
Section: net
Description: draws how quickly hosts answer
 Sends packets to a list of hosts each second and draws the delay and the lost packets as a graph in the
 terminal.

Package: proxyhop
Section: net
Description: proxy server with rules for each client
 Forwards web requests of clients, keeps copies of pages and refuses addresses by rules. The log shows each
 request with its host and size.

Package: netshare
Section: net
Description: shares folders with other computers
 Finds computers of the local network, shows the folders that they share and mounts them with one command.
 Passwords are kept by the key ring.

Package: starchart
Section: science
Description: shows the sky of any place and time
 Displays stars, planets and galaxies as an astronomer sees them from any place on earth. Catalogs with millions
 of stars can be added.

Package: molview
Section: science
Description: viewer for the structure of molecules
 Shows proteins and small molecules as atoms, bonds or surfaces, measures distances and angles, and aligns two
 structures with each other.

Package: genomealign
Section: science
Description: aligns sequences of a genome
 Compares DNA sequences with a reference genome and finds mutations. The algorithm uses an index and several
 processors.

Package: statlab
Section: science
Description: statistics for measured data
 Computes means, tests and regressions of tables, and draws histograms. Results of each analysis are written with
 their uncertainty.

Package: finitebeam
Section: science
Description: computes the bending of beams
 Solves equations of elasticity with finite elements for beams and frames. Loads, materials and supports are
 described in a text file.

Package: climatebox
Section: science
Description: simple model of the climate
 Simulates temperature and humidity of the atmosphere in boxes over a hundred years. Parameters of the simulation
 can be fitted to measured data.

Package: cellcount
Section: science
Description: counts cells in images of a microscope
 Finds the borders of cells in microscope data, counts them by size and writes a table for the statistics of an
 experiment.

Package: quakelist
Section: science
Description: analyses records of earthquakes
 Reads records of seismic stations, finds the arrival of waves and computes place and magnitude of each
 earthquake with its uncertainty.

Package: chemtable
Section: science
Description: periodic table with data of the elements
 Shows mass, melting point, isotopes and electron shells of all chemical elements and computes the mass of a
 molecule from its formula.

Package: neurosim
Section: science
Description: simulates networks of nerve cells
 Solves the equations of neurons and synapses, records voltages and compares them with measured data of an
 experiment.

Package: wavecut
Section: sound
Description: editor for audio recordings
 Cuts, joins and fades sound files, removes noise and changes speed or pitch. The waveform of each channel is
 shown in several scales.

Package: drumloop
Section: sound
Description: drum machine with patterns
 Plays drum patterns of sixteen steps with samples for each instrument. Patterns can be chained to songs and
 follow a MIDI clock.

Package: tunerbox
Section: sound
Description: tuner for guitars and other instruments
 Listens to the microphone, shows the pitch of a note and how far it is from the right one. Tunings for many
 instruments are included.

Package: songbook
Section: sound
Description: music player with a library
 Plays music of many audio formats, sorts it by artist and album and finds songs by parts of their title.
 Playlists change by rules.

Package: mixdesk
Section: sound
Description: mixer for the sound of all programs
 Shows a volume control for each program and each sound card, with an equalizer and a meter. Audio can be moved
 to another output while it plays.

Package: voicenote
Section: sound
Description: records short spoken notes
 Starts to record when somebody speaks, stops at silence and saves each note as an audio file with date and
 length.

Package: synthkeys
Section: sound
Description: synthesizer that is played with the keyboard
 Makes sound from oscillators, filters and envelopes. Each sound can be saved as a preset and played by a MIDI
 keyboard.

Package: cdtracks
Section: sound
Description: reads the tracks of audio discs
 Copies the music of compact discs without errors, finds the titles of the tracks and writes compressed audio
 files with tags.

Package: echochain
Section: sound
Description: effects for live sound
 Adds echo, reverb, chorus and distortion to the audio of a microphone or guitar with a very short delay. Effects
 are chained with the mouse.

Package: scoreplay
Section: sound
Description: plays written music
 Reads scores, plays their notes with sampled instruments and marks the note that sounds. The tempo can be
 changed while the music plays.
)deb822";

}  // namespace

std::string_view fixture_packages() {
  return kPackages;
}

}  // namespace data::prepare
