// Package match says whether the query and the headers of a request are what a
// rule wants.
//
// Words. A matcher (task.Match) is about one parameter or one header by its
// name. It is compiled once. Ambiguous is what two servers could read in two
// ways: a name given twice or in another spelling, an escape that is none, a
// semicolon, a plus sign. What is ambiguous never matches, whatever the matcher
// is, also one that wants nothing of that name.
//
// Not promised: that a server reads a request as its own documentation says.
package match
