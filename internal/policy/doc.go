// Package policy turns who-asks-what into an immutable grant, and later
// answers one use of a grant with a decision and a reason. It is pure: text and
// values come in, values go out; it reads no file, clock or network.
//
// Words. A policy file is a task's request, in YAML, read strictly: a field
// that is not known is an error that names its line. The operator layer is
// what the machine's owner says; only it can open private addresses. A plan is
// what the two come to for each stage. A use is one connection asked for.
//
// Default deny: an empty file, a stage that is not named and the zero grant
// reach nothing. Not promised here: that a name's address is harmless. The
// gateway checks the address it is about to dial (egress).
package policy
