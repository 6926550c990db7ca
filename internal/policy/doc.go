// Package policy turns what a task asks for, and the layers around it, into a
// plan of grants. It is pure: text and values come in, values go out; it reads no
// file, clock or network. What one use of a grant comes to is package decide.
//
// Words. A layer is what one of four says, in YAML, read strictly: a field that
// is not known, or a rule that could never match, is an error that names its
// line. The operator binds all, and only it can open private addresses; a
// project binds its tasks; a repository's file is a stranger's request; a task
// has its own policy file. A ceiling is what a layer lets those below ask for at
// most. To narrow is to leave out what was asked for and not given. A plan is
// what the layers come to for each stage. A preset stands for rules, and a file in
// another form than ours for one in ours: both are read as what they come to.
//
// Default deny: an empty file, a stage that is not named and the zero grant
// reach nothing. Layers only narrow.
package policy
