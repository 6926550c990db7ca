// Package match says whether a host, a path, a query and headers are what a rule
// wants, and how what two rules want relates.
//
// Words. A pattern stands for hosts beneath a name ("*.x", "**.x"), or for paths
// ("*" one segment, a last "**" any rest). A matcher (task.Match) is about one
// parameter or one header by its name; it is compiled once. Ambiguous is what two
// servers could read in two ways: a path with dot segments or hidden slashes, a
// name given twice or in another spelling, an escape that is none, a semicolon, a
// plus sign. What is ambiguous never matches, whatever the matcher is, also one
// that wants nothing of that name.
//
// Within, Disjoint and their like say what is certain; where they can't tell,
// they say no. Not promised: that a server reads a request as its own
// documentation says.
package match
