// Package agent says how the agents that are programs of their own run inside a
// sandbox: what is run, with which settings, how what they write is read, and
// what their end means. One folder beneath it is one harness. It does no I/O:
// the stages run what it says and give it what came back.
//
// Words. A harness is a vendor's agent program. Its stream is what it writes on
// standard output, a JSON document a line. An event is one thing it said or did,
// the same for all harnesses. A session is the harness's own memory of a
// conversation, by which it goes on after its process ended.
//
// A harness is told no secret. Where it wants a key it gets a placeholder, for
// which the gateway puts the key on the way out. Every byte it writes is
// hostile: lines, depth, numbers and counts are limited, what is no JSON is kept
// as text, and nothing it says decides more than the text of its own end.
//
// Not promised: that versions other than the catalog's write what is read here.
package agent
