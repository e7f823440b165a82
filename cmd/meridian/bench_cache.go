package main

import cachebench "meridian/prove/bench/cache"

type benchCache struct {
	cachebench.Options
	JSON rowsFile `placeholder:"[FILE]" help:"Print everything as JSON instead of tables; with FILE, write it there beside them."`
}

func (c *benchCache) Help() string {
	return "What the shared cache of prefixes does, in parts. trace: a recorded day, made small in a way that is told, goes through a gateway to two reference engines, " +
		"without a store and with one, of memory, and of little memory with a disk or S3 below; what was found is told beside what a cache without bound and an LRU model of the same bytes find, and why tokens were computed that the model has. " +
		"That model has a prompt as soon as it is sent; a second one, in time, when its first token came in the run, since before that no engine has computed it. " +
		"tiers: a prompt that is computed, and comes from memory, from disk and from S3. disk: objects beside a plain file in the same folder. " +
		"vllm: a prompt that one server of vLLM has computed, at another one, beside computing it and beside vLLM's ExampleConnector; what a miss and keeping cost; two servers at a time, 2 GiB of memory each. " +
		"What is not installed is named and left out. Ratios from one run can be compared; figures from two runs can not."
}

func (c *benchCache) Run(std *stdio) error {
	c.Setting = settingOf(std)
	return measure(std, "bench cache", cachebench.Run, c.Options, c.JSON)
}
