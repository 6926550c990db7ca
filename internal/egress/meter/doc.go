// Package meter counts what requests to models use, by what their servers say
// in the answers: JSON documents and streams of Anthropic's, OpenAI's and
// Google's APIs, and of servers that speak like one of them.
//
// Words. A kind is a shape of requests and answers, told by method and path. A
// Meter watches one request and its answer while they pass, and changes neither.
// What it reads is the far side's: each byte is looked at once, and memory is a
// few hundred bytes whatever comes.
//
// An answer that tells nothing, or was cut off before it did, is estimated from
// the bytes that passed, on the high side: so breaking an answer off before its
// count comes gains nothing.
//
// Not promised: that a server says the truth; what is charged for other than by
// answers of these kinds (batches, uploads, WebSocket), which KindOf tells apart
// as Uncounted; tokens that a model thinks without sending a byte before its
// answer is broken off.
package meter
