// Package patch reads a patch in git's format as bytes that a stranger wrote, and
// names every file that it touches.
//
// Words. A patch is a list of files; each has a header, and then hunks of lines, or
// binary data, or nothing. The reader takes what `git diff --binary` writes with the
// prefixes a/ and b/, and nothing else: git itself skips what it doesn't know and
// guesses where names end, so a patch that two programs read differently is refused
// here with the line.
//
// Memory does not grow with the patch: lines are given on one by one, and of one
// longer than MaxLine only its beginning.
//
// Not promised: that the patch applies, or that its binary data is sound.
package patch
