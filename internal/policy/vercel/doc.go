// Package vercel takes the network policy of Vercel's sandboxes for what a
// policy file of ours says, stricter where theirs is open.
//
// Words. The form is what their SDK calls NetworkPolicy: "allow-all", "deny-all",
// or allow (a list of domains, or domains with rules) and subnets; what their API
// calls mode, allowedDomains, allowedCIDRs and deniedCIDRs is taken too. What it
// comes to is for the stages setup and agent.
//
// Stricter: only port 443; a rule that has match allows what matches and nothing
// else; expressions are for the whole value; a prefix of a path ends at a slash.
// Refused, with what to write: everything at once, the domain "*", ranges of
// addresses, headers with values of their own, requests that are sent elsewhere.
//
// Not promised: to know what they add. A key that is not known is refused.
package vercel
