package main

import (
	"context"

	"meridian/decide/policy"
	"meridian/prove/bench"
	"meridian/prove/bench/serving"
)

type benchPolicies struct {
	serving.PoliciesOptions
	JSON rowsFile `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
}

func (c *benchPolicies) Help() string {
	return "A cell of real processes for each scheduling policy, with engines too small for the load, and the same requests for all of them, when they are due: some think long, some hardly. " +
		"Rounds go through the policies in turn, and what is told beside each figure is its ratio to that of stock in the same round. Every answer must be that of an engine alone. " +
		"static-budget is stock with a cap of thoughts that none here reaches. Cells of all policies are open at a time, about 2 GB."
}

func (c *benchPolicies) Run(std *stdio) error {
	if len(c.Policies) == 0 {
		c.Policies = policy.Names()
	}
	c.Setting = settingOf(std)
	return measure(std, "bench policies", func(ctx context.Context, o serving.PoliciesOptions) (*serving.PoliciesReport, error) {
		if err := bench.Known("policy", o.Policies, policy.Names()); err != nil {
			return nil, err
		}
		return serving.RunPolicies(ctx, o)
	}, c.PoliciesOptions, c.JSON)
}
