# Entry points: make site, make test. `make help` lists all.
SHELL := /bin/bash
export GPUNODE_LAB_INDEX ?= 0
PATH := $(CURDIR)/.venv/bin:$(PATH)
export PATH

.PHONY: help setup site test test-all lint unit contract browser molecule bench lab-up lab-down

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## packages and the virtual environment of the controller
	@tools/setup.sh controller

lab-setup: setup
	@tools/setup.sh lab

lab-up: lab-setup ## the lab: a Proxmox node with 8 GPUs as a container of this machine
	@python3 -m lab up

lab-down: setup ## take the lab down
	@python3 -m lab down

site: lab-up ## everything a fresh machine needs, then stand up gpu-node-01 in the lab
	@ansible-playbook -i inventory/lab site.yml -l gpu-node-01

lint: setup ## ruff, mypy, yamllint, ansible-lint, shellcheck
	@python3 tests/run.py lint

unit: setup ## unit tests
	@python3 tests/run.py unit

contract: setup ## tests against other people's artefacts
	@python3 tests/run.py contract

browser: setup ## tests of HTML reports in headless Chromium
	@tools/setup.sh browser
	@python3 tests/run.py browser

molecule: lab-setup ## scenarios on the lab
	@python3 tests/run.py molecule

bench: setup ## speed and memory as ratios
	@python3 tests/run.py bench

test: lab-setup ## lint, unit, contract, browser tests and the scenarios
	@tools/setup.sh browser
	@python3 tests/run.py lint unit contract browser molecule

test-all: lab-setup ## also the long matrices
	@tools/setup.sh browser
	@GPUNODE_LONG=1 python3 tests/run.py lint unit contract browser molecule
