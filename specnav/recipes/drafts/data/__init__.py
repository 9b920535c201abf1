# SPDX-License-Identifier: Apache-2.0
"""What a draft learns from: files of questions and texts, bags, logs, composed requests, what is installed."""
