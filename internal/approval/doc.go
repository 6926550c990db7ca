// Package approval is the inbox: what is asked of a person before something
// happens, and what the person answered.
//
// Words. A question names what is wanted, byte for byte; its digest is what is
// approved. A question that waits is an entry of the inbox; asked again it is
// the same entry, counted. An answer has a scope: once is one use of exactly
// what was asked; task and project are decisions, which stand and answer the
// same in this stage of the task, or of every task of the project, until they
// end or are withdrawn. Who asks takes an answer for one use by a name of its
// own: the same name again takes the same, another name finds it taken.
//
// A question ends in one of five ways: allowed, denied, expired, withdrawn (who
// asked is gone, or a person took the answer back) or void (what was asked for
// changed). Nothing of it is memory: a program that starts again finds every
// entry, and who asked asks again with the same key. Each state is in the audit
// before anybody acts on it.
//
// Not promised: that a person sees a question in time. Not decided here: which
// questions may be asked at all; policy says that.
package approval
