// Package sigv4 reads how a request is signed with AWS Signature Version 4,
// verifies that signature with the keys that a sandbox was given in place of
// others, and signs the request anew with the real ones. It is pure: the clock
// comes as an argument, and nothing is read but the body it is given.
//
// Words. A message is a request's line and header as they are sent. A claim is
// what a message says of its signature: in the Authorization header or, as a
// presigned URL, in the query. A scope is the day, region and service that a
// signature is for. A spelling is one of the ways in which clients write path and
// query for signing; the one with which the claim was verified is the one with
// which the message is signed anew, so that the far side accepts what it would
// have accepted from the client. A seal is what signs chunks: each signature
// covers the one before.
//
// Refused by name: SigV2, SigV4a (AWS4-ECDSA-P256-SHA256), event streams, and
// what is signed twice or not at all.
//
// Not promised: that the far side spells as the client does. A digest that the
// client declares is compared with the body as it passes, so a far side may have
// all of a body but its last byte before it is broken off.
package sigv4
