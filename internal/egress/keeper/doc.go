// Package keeper is the worker's side of the gateway: it gives each sandbox's
// network device to the gateway, keeps what a restarted gateway needs to go on
// as before, and hands it over again by itself.
//
// Words. Kept is what there is for one sandbox: a duplicate of the device's
// descriptor, and a journal on disk with its names, its sealed authority and
// its grant. The link is the present connection to a gateway; its epoch is that
// gateway's boot id. A sandbox is in step with a link when the gateway has all
// that is kept.
//
// A journal is written and synced before the gateway is told (a grant) or may
// go on (a name), so that whatever was in force, or told inside, is known after
// any crash.
//
// Not promised: that connections open through a gateway survive its end.
package keeper
