// Package gateway is the user door: an HTTP server that speaks the OpenAI API,
// places every request on engines, and sees it through when they fail.
//
//	client ──► listener ──► admission ──► flow ──► prefill leg ──► ticket ──┐
//	  ▲       (connections) (reading, waiting, running)                     ▼
//	  └──── relay ◄──────────────────────────────────────────────────── decode leg
//
// What becomes of a request is a machine without I/O, lifecycle.Route; everything else
// feeds it or does what it says.
//
// Engines are found in the directory or listed; the roster knows who is there
// and how busy, with the gateway's own counts, and what they hold, where they say
// so. The admin listener, whose connections are counted apart, shows
// metrics, health and debug pages; no page shows the text of a prompt.
package gateway
