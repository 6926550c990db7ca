// Package login lends the access tokens of a person's own subscription: what
// Claude Code and Codex have after somebody signed in with them. It is a minter of
// the kinds claude-login and codex-login.
//
// Words. The source of a login is where its text is: the file that the tool keeps
// it in, in a folder of the control plane's machine, or the vault, for a login of
// our own. An access token is lent as long as it lasts for some minutes yet. Then
// it is renewed: the vendor is asked with the refresh token, and what it answers
// is written back to the source, the rotated refresh token with it, before
// anything of it is lent. The refresh token is never lent.
//
// One login is renewed by one at a time: here by taking turns, and in the tool's
// folder under the tool's own locks. Who gets its turn reads again first, since
// the one before may have done it. What the vendor answered is kept here until it
// is written, also when who asked for it is gone.
//
// Not promised: that a login survives a kill between the vendor's answer and the
// write. Most vendors take a refresh token once: then somebody must sign in again,
// and the error says so. That a token ends with its lease: it is the person's own,
// in the tool's folder too, and lasts until its time.
package login
