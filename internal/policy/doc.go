// Package policy turns who-asks-what into an immutable grant, and later
// answers one use of a grant with a decision and a reason. It is pure: text and
// values come in, values go out; it reads no file, clock or network.
//
// Words. A layer is what one of four says, in YAML, read strictly: a field that
// is not known, or a rule that could never match, is an error that names its
// line. The operator binds all, and only it can open private addresses; a
// project binds its tasks; a repository's file is a stranger's request; a task
// has its own policy file. A ceiling is what a layer lets those below ask for at
// most. To narrow is to leave out what was asked for and not given. A plan is
// what the layers come to for each stage. A use is one connection asked for, a
// request one HTTP request on it. An index answers for grants of any length.
//
// Default deny: an empty file, a stage that is not named and the zero grant
// reach nothing. Layers only narrow. Not promised here: that a name's address is harmless. The
// gateway checks the address it is about to dial (egress).
package policy
