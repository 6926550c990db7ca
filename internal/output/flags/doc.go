// Package flags says in what a task's patch may bite whoever takes it: it would run
// when the folder is opened, committed, installed, built or given to CI; it leads
// out of the tree; it holds a secret; it reads otherwise than it is; or nobody can
// see what it is.
//
// Words. A finding is one place; its id is a kind of package task and what of it,
// such as workflow.github. A rule is about names, a check about added lines. The
// judge reads a patch once, as bytes that a stranger wrote, with flat memory; where
// it stops looking, that is a finding of kind limit.
//
// Names are compared as the most forgiving file system would: case, compatible
// forms of characters, invisible ones, and what Windows drops at a name's end don't
// count.
//
// Not promised: that what has no finding is harmless. A patch is code; a test that
// it changes runs in CI whatever its name is. What lies in the base is not seen: a
// link that was there before, or a script that an old hook calls.
package flags
