// Package issuer says who a run is: it is the OpenID Connect issuer of an
// installation, and signs short tokens that speak for one stage of one task.
//
// Words. The issuer URL is configuration: relying parties find the discovery
// document and the key set beneath it, served by cofferdamd or by any https host
// that the two files were exported to. Without one nothing is signed. A subject
// is who the token speaks for, built so that no value in it can pass for another
// part. A key is next while it is published and does not sign yet, current while
// it signs, and retired while tokens that it signed may still be shown; then it
// is forgotten. A key that signs no more has no private part left.
//
// Keys lie in one file, readable by its owner only, replaced whole or not at
// all; never in the database. Every token is on record before it is given out,
// by its id and never by its text.
//
// Not promised: that a token ends before its time. Nobody can take one back from
// who has it; that is why it lives for ten minutes at most, and why only the
// stages whose policy says so ever see one. The commit is what the checkout
// inside said it was.
package issuer
