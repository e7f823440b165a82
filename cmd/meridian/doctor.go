package main

import (
	"context"
	"time"

	"meridian/see/doctor"
)

type doctorCommand struct {
	JSON bool `help:"Print one JSON object."`
}

func (c *doctorCommand) Run(io *stdio) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	report := doctor.Examine(ctx, doctor.ThisHost())
	if c.JSON {
		return io.writeJSON(report)
	}
	return report.WriteText(io.out)
}
