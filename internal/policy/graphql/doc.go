// Package graphql says whether a request to GitHub's GraphQL API stays within
// one repository.
//
// Words. The root is where an operation begins; only the field repository, with
// the repository's owner and name, is entered from it. Inside are the objects of
// the repository, by the names of the fields that lead to them. A door is a field
// that leads out, to an account or to another repository: what stands behind it
// is named and not entered. Both lists are of names that are known; a field with
// a selection whose name is not known is refused, so that what GitHub adds stays
// shut.
//
// Mutations name what they change by ids that say nothing to us, so none pass but
// those that a rule names, and of those only createCommitOnBranch is kept to the
// repository. A document is judged by its text, without a schema, and refused
// when it could be read in two ways: it is ASCII without block strings and
// escapes of characters. Queries that a server has stored are refused, and lists
// of operations.
//
// Not promised: that what a repository's own objects quote of elsewhere (such as
// texts, names and links) stays secret, and anything about mutations that a rule
// names beyond their names. Lend a credential that is itself kept to the
// repository.
package graphql
